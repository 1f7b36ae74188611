//! The online state machine's face: what a front end may tell it and ask of it.

use crate::arena::blocks::NOWHERE;
use crate::graph::Phase;
use crate::replay::dtr::Goal;
use crate::replay::select as fit;
use crate::transaction::collect::Freed;
use crate::transaction::state::{Call, State, Stop};
use crate::{
    pool, Bytes, Config, Cost, Dealloc, Error, Expected, Finished, Heirs, OpId, OpSpec, Output,
    PoolId, Step, StorageId, TensorId,
};
use std::fmt;

/// The engine. Tell it what happens; perform the [`steps`](Engine::steps) it answers with, in order, before telling it
/// anything else.
///
/// Two ops of 60 bytes each do not fit into 100 beside one another; the first result is dropped to make room for the
/// second, and computed again when it is needed.
///
/// ```
/// use remat_core::*;
///
/// let mut engine = Engine::new(Config { budgets: vec![Some(Bytes(100))], ..Config::default() });
/// let weights = engine.constant(Bytes(10), PoolId(0))?;
/// let fresh = [Output::Fresh { bytes: Bytes(60), pool: PoolId(0) }];
/// let spec = OpSpec {
///     inputs: &[weights],
///     outputs: &fresh,
///     workspace: Bytes(0),
///     workspace_pool: PoolId(0),
///     replay: Replay::Allowed,
/// };
/// let report = Finished { cost: Cost(5), bytes: None };
///
/// let first = engine.begin(&spec)?;
/// assert_eq!(engine.steps(), []);
/// engine.finish(first, &report)?;
/// let a = engine.outputs(first)[0];
///
/// let second = engine.begin(&spec)?;
/// assert_eq!(engine.steps(), [Step::Evict(engine.storage(a))]);
/// engine.finish(second, &report)?;
///
/// engine.ensure(&[a])?;
/// let b = engine.storage(engine.outputs(second)[0]);
/// assert_eq!(engine.steps(), [Step::Evict(b), Step::Recompute { op: first, mutation: Mutation::Consume }]);
/// assert_eq!(engine.memory(PoolId(0)), Bytes(70));
/// # Ok::<(), Error>(())
/// ```
pub struct Engine {
    pub(crate) state: State,
    goal: Goal,
    freed: Freed,
}

/// Counters, all since the engine was made. Unperformed (aborted) steps are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Storages evicted to make room (eager evictions not included).
    pub evictions: u64,
    /// Ops replayed.
    pub replays: u64,
    /// Cost of those replays.
    pub replayed_cost: Cost,
    /// Cost of first computations.
    pub first_cost: Cost,
    /// Searches for what to evict: one for each storage evicted to make room, or one for each window.
    pub searches: u64,
    /// In arenas, blocks that were not to be had without evicting.
    pub shortages: u64,
    /// Bytes of these blocks.
    pub shortage_bytes: u64,
    /// In arenas, bytes evicted to make room.
    pub evicted_bytes: u64,
    /// Of these, bytes that the block for which room was made does not cover.
    pub unused_evicted_bytes: u64,
    /// In arenas, the sum over all shortages of the bytes that were free once the block was taken.
    pub free_after: u64,
    /// The most bytes that were free once such a block was taken.
    pub most_free_after: u64,
    /// In arenas, bytes of the blocks that were moved.
    pub moved_bytes: u64,
    /// Score evaluations of an exhaustive search, which the search no longer is.
    pub score_evaluations: u64,
    /// Storage metadata accesses of an exhaustive search, counted as DTR appendix D.3 does.
    pub metadata_accesses: u64,
}

/// How far the plan that was refused last had got in DTR's own order when it stopped; for comparison with simulators
/// that perform a plan while they look for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The clock there.
    pub clock: u64,
    /// The counters there.
    pub counters: Counters,
    /// Highest memory of pool 0 there.
    pub peak: Bytes,
}

/// Ids that were freed.
#[derive(Clone, Copy, Debug)]
pub struct Collected<'a> {
    /// Ops that will not be replayed any more.
    pub ops: &'a [OpId],
    /// Storages that no op and no reference needs any more.
    pub storages: &'a [StorageId],
}

impl Engine {
    /// A fresh engine; its clock stands at 1.
    pub fn new(config: Config) -> Engine {
        Engine {
            state: State::new(config),
            goal: Goal::default(),
            freed: Freed::default(),
        }
    }

    /// Below so many candidates of a pool a victim is found by an exhaustive scan, which picks the same, and windows are compared by whole
    /// costs at once: for measurements and tests.
    #[doc(hidden)]
    pub fn search_exhaustively_below(&mut self, candidates: usize) {
        self.state.candidates.search_exhaustively_below(candidates);
    }

    /// Brings up to date what a search goes by, as the next search would: for measurements.
    #[doc(hidden)]
    pub fn prepare_search(&mut self, pool: PoolId) {
        self.state.prepare_search(pool.0);
    }

    /// The storage that would go first if room had to be made now: for measurements and tests.
    #[doc(hidden)]
    pub fn next_victim(&mut self, pool: PoolId) -> Option<StorageId> {
        self.state.foresee_victim(pool.0)
    }

    /// A non-rematerializable storage (weights, data, anything made elsewhere), resident and pinned, with one reference.
    /// Its bytes are there already: steps may follow that evict others to get back under the budget.
    ///
    /// # Errors
    /// [`Error::Budget`] when nothing more can be evicted; the constant is then not registered.
    pub fn constant(&mut self, bytes: Bytes, pool: PoolId) -> Result<TensorId, Error> {
        check_size(bytes.0)?;
        let state = &mut self.state;
        state.open_call();
        state.free_bytes(pool.0, bytes.0)?;
        let tensor = self.add_constant(bytes, pool)?;
        self.state
            .assign_constant(self.state.graph.storage_of(tensor));
        self.state.journal.stop();
        self.state.call = Call::Constant(tensor);
        Ok(tensor)
    }

    pub(crate) fn add_constant(&mut self, bytes: Bytes, pool: PoolId) -> Result<TensorId, Error> {
        let state = &mut self.state;
        let storage = state.graph.add_storage(bytes, pool)?;
        let tensor = state.graph.add_tensor(storage, None)?;
        state.grow(pool.0, bytes.0);
        state.graph.tensors[tensor.index()].defined = true;
        let record = &mut state.graph.storages[storage.index()];
        record.resident = true;
        record.pinned = true;
        record.last_access = state.clock;
        Ok(tensor)
    }

    /// Announces an op. On success the inputs are locked, bytes for outputs and workspace are reserved, and
    /// [`steps`](Engine::steps) holds all that must be performed before it may run. The outputs get ids at once
    /// ([`outputs`](Engine::outputs)), each with one reference.
    ///
    /// An op that writes in place over a constant destroys it for good: all that is referenced and was computed from the
    /// old value is first brought back and pinned, and the op's outputs are constants too.
    ///
    /// # Errors
    /// [`Error::Budget`], [`Error::Thrash`]; found before anything is performed. [`Error::Protocol`] for unknown ids or
    /// indices, [`Error::Overflow`] for sizes beyond 63 bits.
    pub fn begin(&mut self, op: &OpSpec<'_>) -> Result<OpId, Error> {
        self.begin_expecting(op, Expected::default())
    }

    /// [`begin`](Engine::begin) for a front end that knows what the op will cost: scores taken while its inputs are
    /// brought back count that cost already, as the reference simulator does. In an arena cost and kind say where outputs
    /// are placed.
    ///
    /// # Errors
    /// As [`begin`](Engine::begin).
    pub fn begin_expecting(
        &mut self,
        op: &OpSpec<'_>,
        expected: impl Into<Expected>,
    ) -> Result<OpId, Error> {
        let expected = expected.into();
        self.check_spec(op)?;
        check_size(expected.cost.0)?;
        let state = &mut self.state;
        state.open_call();
        let id = state.graph.add_op(op, expected)?;
        state.note_announced(id);
        self.goal.targets.clear();
        state.frontier(id, &mut self.goal.targets);
        self.goal.inputs_from = self.goal.targets.len();
        self.goal.targets.extend_from_slice(op.inputs);
        self.goal.op = Some(id);
        if let Err(refusal) = state.plan(&self.goal) {
            state.discard(id);
            return Err(refusal);
        }
        state.take_sought_bytes();
        state.assign_blocks(id);
        for &target in &self.goal.targets[..self.goal.inputs_from] {
            let storage = state.graph.storage_of(target);
            state.pin_storage(storage);
            state.to_cut.push(storage);
            state.unlock(storage);
        }
        state.journal.stop();
        state.call = Call::Begin(id);
        Ok(id)
    }

    /// Steps of the latest call, to be performed in order before anything else is told.
    pub fn steps(&self) -> &[Step] {
        &self.state.steps
    }

    /// The op ran. Steps may follow: evictions because outputs turned out larger than announced, or of inputs that
    /// nobody needs any more.
    ///
    /// # Errors
    /// [`Error::Budget`] if outputs turned out larger than announced and nothing can be evicted; the op counts as run.
    /// [`Error::Protocol`] if the op was not begun, [`Error::Overflow`] if the clock would pass 63 bits.
    pub fn finish(&mut self, op: OpId, report: &Finished<'_>) -> Result<(), Error> {
        let record = self
            .state
            .graph
            .ops
            .get(op.index())
            .filter(|record| record.phase == Phase::Open);
        let outputs = record
            .ok_or(Error::Protocol("finish of an op that was not begun"))?
            .outputs
            .len();
        if report.bytes.is_some_and(|bytes| bytes.len() != outputs) {
            return Err(Error::Protocol("as many sizes as outputs must be reported"));
        }
        report
            .bytes
            .unwrap_or_default()
            .iter()
            .try_for_each(|bytes| check_size(bytes.0))?;
        check_size(self.state.clock.saturating_add(report.cost.0))?;
        self.state.open_call();
        self.state.complete(op, report);
        self.state.cut_pinned();
        self.state.journal.stop();
        self.state.free_excess()
    }

    /// The op begun raised an error: its outputs never were, its inputs are unlocked.
    pub fn cancel(&mut self, op: OpId) {
        let record = self.state.graph.ops.get(op.index());
        if record.is_some_and(|record| record.phase == Phase::Open) {
            self.state.open_call();
            self.state.give_up(op);
            self.state.cut_pinned();
        }
    }

    /// Only the first `performed` of the latest steps were performed. The state becomes what they left, and the call
    /// that yielded them (op, ensure, ...) counts as cancelled.
    pub fn abort(&mut self, performed: usize) {
        self.state.abort(performed);
    }

    /// Tensors an op has made, in output order; none for an unknown op.
    pub fn outputs(&self, op: OpId) -> &[TensorId] {
        self.state
            .graph
            .ops
            .get(op.index())
            .map_or(&[], |record| &record.outputs)
    }

    /// Tensors an op reads, in input order; none for an unknown op.
    pub fn inputs(&self, op: OpId) -> &[TensorId] {
        self.state
            .graph
            .ops
            .get(op.index())
            .map_or(&[], |record| &record.inputs)
    }

    /// The storage that a tensor views; `StorageId(u32::MAX)` for an unknown tensor.
    pub fn storage(&self, tensor: TensorId) -> StorageId {
        self.state
            .graph
            .tensors
            .get(tensor.index())
            .map_or(StorageId(u32::MAX), |record| record.storage)
    }

    /// Size of a storage; 0 for an unknown one.
    pub fn bytes(&self, storage: StorageId) -> Bytes {
        Bytes(
            self.state
                .graph
                .storages
                .get(storage.index())
                .map_or(0, |record| record.bytes),
        )
    }

    /// Whether the storage's bytes are there.
    pub fn is_resident(&self, storage: StorageId) -> bool {
        self.state
            .graph
            .storages
            .get(storage.index())
            .is_some_and(|record| record.resident)
    }

    /// Whether the tensor can be read now: its storage is resident and its op ran since (DTR appendix C.1).
    pub fn is_defined(&self, tensor: TensorId) -> bool {
        self.state
            .graph
            .tensors
            .get(tensor.index())
            .is_some_and(|record| record.used && record.defined)
    }

    /// Whether the storage is pinned (constant).
    pub fn is_pinned(&self, storage: StorageId) -> bool {
        self.state
            .graph
            .storages
            .get(storage.index())
            .is_some_and(|record| record.pinned)
    }

    /// One more reference from outside.
    ///
    /// # Errors
    /// [`Error::Protocol`] for a tensor that is unknown or was let go.
    pub fn retain(&mut self, tensor: TensorId) -> Result<(), Error> {
        self.check_tensor(tensor)?;
        let graph = &mut self.state.graph;
        let s = graph.storage_of(tensor);
        let storage = &mut graph.storages[s.index()];
        storage.refs = storage.refs.checked_add(1).ok_or(Error::Overflow)?;
        let first = storage.refs == 1;
        graph.tensors[tensor.index()].refs += 1;
        if first {
            self.state.void_numerator(s);
        }
        Ok(())
    }

    /// One reference less. Steps may follow (the storage's own eviction, and that of what only it needed).
    ///
    /// # Errors
    /// [`Error::Protocol`] for a tensor without a reference.
    pub fn release(&mut self, tensor: TensorId) -> Result<(), Error> {
        self.check_tensor(tensor)?;
        if self.state.graph.tensors[tensor.index()].refs == 0 {
            return Err(Error::Protocol("release without a reference"));
        }
        self.state.open_call();
        if self.state.dealloc != Dealloc::Ignore {
            self.state.drop_reference(tensor);
        }
        self.state.cut_pinned();
        Ok(())
    }

    /// Makes tensors resident, all at once, now. Steps follow.
    ///
    /// # Errors
    /// As [`begin`](Engine::begin).
    pub fn ensure(&mut self, tensors: &[TensorId]) -> Result<(), Error> {
        self.plan_targets(tensors)?;
        self.state.journal.stop();
        Ok(())
    }

    /// Makes a tensor resident and keeps it so for good; its lineage is cut. Steps follow.
    ///
    /// # Errors
    /// As [`begin`](Engine::begin).
    pub fn pin(&mut self, tensor: TensorId) -> Result<(), Error> {
        self.plan_targets(&[tensor])?;
        let storage = self.state.graph.storage_of(tensor);
        self.state.pin_storage(storage);
        self.state.to_cut.push(storage);
        self.state.journal.stop();
        Ok(())
    }

    /// Constants whose owners let them go may still be needed to recompute something. Says which of them, from the first
    /// on, to let go together, and which tensors to [`pin`](Engine::pin) before: most bytes freed beyond those pinned. Once
    /// the tensors are pinned and the constants released, the constants' bytes are free. Changes nothing itself.
    ///
    /// Takes time linear in what was computed from the constants up to those tensors.
    ///
    /// # Errors
    /// [`Error::Protocol`] for unknown tensors and those that are no constants.
    pub fn heirs(&mut self, constants: &[TensorId]) -> Result<Heirs, Error> {
        for &tensor in constants {
            self.check_tensor(tensor)?;
            let storage = self.state.graph.storage_of(tensor);
            if !self.state.graph.storages[storage.index()].pinned {
                return Err(Error::Protocol("only constants have heirs"));
            }
        }
        Ok(self.state.heirs(constants))
    }

    fn plan_targets(&mut self, tensors: &[TensorId]) -> Result<(), Error> {
        tensors
            .iter()
            .try_for_each(|&tensor| self.check_input(tensor))?;
        let state = &mut self.state;
        state.open_call();
        self.goal.targets.clear();
        self.goal.targets.extend_from_slice(tensors);
        self.goal.inputs_from = tensors.len();
        self.goal.op = None;
        state.plan(&self.goal)?;
        for &tensor in tensors {
            state.unlock(state.graph.storage_of(tensor));
        }
        state.call = Call::Plan;
        Ok(())
    }

    /// Changes a pool's budget. Steps may follow.
    ///
    /// # Errors
    /// [`Error::Budget`] if what cannot be evicted does not fit; the old budget stays.
    pub fn set_budget(&mut self, pool: PoolId, budget: Option<Bytes>) -> Result<(), Error> {
        let state = &mut self.state;
        state.open_call();
        let before = std::mem::replace(&mut state.pool(pool.0).budget, budget.map(|bytes| bytes.0));
        if let Err(refusal) = state.move_budget(pool.0, before, budget) {
            state.pool(pool.0).budget = before;
            return Err(refusal);
        }
        state.journal.stop();
        state.call = Call::Budget(pool.0, before);
        Ok(())
    }

    /// Bytes resident and reserved in a pool.
    pub fn memory(&self, pool: PoolId) -> Bytes {
        Bytes(
            self.state
                .pools
                .get(usize::from(pool.0))
                .map_or(0, |pool| pool.memory),
        )
    }

    /// Highest `memory` so far.
    pub fn peak(&self, pool: PoolId) -> Bytes {
        Bytes(
            self.state
                .pools
                .get(usize::from(pool.0))
                .map_or(0, |pool| pool.peak),
        )
    }

    /// Where a storage is in its pool's arena; `None` if it is not resident, has no bytes, or the pool is no arena.
    pub fn address(&self, storage: StorageId) -> Option<u64> {
        let storage = self.state.graph.storages.get(storage.index())?;
        (storage.resident && storage.address != NOWHERE).then_some(storage.address)
    }

    /// The arena of a pool: its blocks, free and taken.
    pub fn arena(&self, pool: PoolId) -> Option<&pool::Pool> {
        self.state.arenas.get(pool.0).map(|arena| &arena.pool)
    }

    /// Nanoseconds that searches took by the [stopwatch](Config::stopwatch), those of plans that came to nothing included.
    pub fn search_time(&self) -> u64 {
        self.state.arenas.search_time
    }

    /// Whether arenas are as they should be: no two blocks overlap, each resident storage has one of its own. For tests and
    /// checking builds; takes time linear in all storages.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self) -> Result<(), String> {
        self.state.check_arenas()
    }

    /// Budget of a pool.
    pub fn budget(&self, pool: PoolId) -> Option<Bytes> {
        self.state
            .pools
            .get(usize::from(pool.0))
            .and_then(|pool| pool.budget)
            .map(Bytes)
    }

    /// The virtual clock: 1 + the cost of all ops run so far.
    pub fn clock(&self) -> u64 {
        self.state.clock
    }

    /// Counters.
    pub fn counters(&self) -> Counters {
        self.state.counters
    }

    /// How far the latest refused plan had got.
    pub fn refused(&self) -> Option<Refused> {
        self.state.refused
    }

    /// Hands over the ids that [`Lineage::Collect`](crate::Lineage) freed since the last call; from now on later calls
    /// may use them again, and not before. Each op's [`outputs`](Engine::outputs) can be read until then.
    pub fn collected(&mut self) -> Collected<'_> {
        self.state.hand_over(&mut self.freed);
        Collected {
            ops: &self.freed.ops,
            storages: &self.freed.storages,
        }
    }

    fn check_spec(&self, op: &OpSpec<'_>) -> Result<(), Error> {
        op.inputs
            .iter()
            .try_for_each(|&input| self.check_input(input))?;
        check_size(op.workspace.0)?;
        for output in op.outputs {
            match *output {
                Output::Fresh { bytes, .. } => check_size(bytes.0)?,
                Output::Alias { of } | Output::InPlace { of } if of >= op.inputs.len() => {
                    return Err(Error::Protocol(
                        "an output refers to an input beyond the last",
                    ));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// A tensor that can be read: known, wanted, and there or computable.
    fn check_input(&self, tensor: TensorId) -> Result<(), Error> {
        self.check_tensor(tensor)?;
        let record = &self.state.graph.tensors[tensor.index()];
        let source = record.op.map(|op| self.state.graph.ops[op.index()].phase);
        match source {
            _ if self.state.graph.storages[record.storage.index()].lost => {
                Err(Error::Protocol(LOST))
            }
            _ if record.defined => Ok(()),
            Some(Phase::Done) => Ok(()),
            Some(_) => Err(Error::Protocol(
                "the op that makes this tensor has not finished",
            )),
            None => Err(Error::Protocol(LOST)),
        }
    }

    pub(crate) fn check_tensor(&self, tensor: TensorId) -> Result<(), Error> {
        let known = self
            .state
            .graph
            .tensors
            .get(tensor.index())
            .is_some_and(|record| record.used);
        if known && (!self.state.collects() || self.state.graph.is_wanted(tensor)) {
            Ok(())
        } else {
            Err(Error::Protocol("unknown or freed tensor"))
        }
    }
}

const LOST: &str = "the only value of this tensor was overwritten";

/// Sizes and times stay below 2^63, so that their sums and differences are sound.
pub(crate) fn check_size(value: u64) -> Result<(), Error> {
    if value <= i64::MAX as u64 {
        Ok(())
    } else {
        Err(Error::Overflow)
    }
}

impl State {
    /// Evicts until so many more bytes fit, or refuses and leaves no trace. The journal stays open.
    fn free_bytes(&mut self, pool: u8, bytes: u64) -> Result<(), Error> {
        self.journal.start();
        self.arenas.in_op = self.open_ops > 0;
        let result = self
            .make_room(pool, bytes)
            .and_then(|()| self.request_constant(pool, bytes));
        self.arenas.in_op = false;
        if result.is_err() {
            self.note_refused();
        }
        let refusal = self.short_of(pool, bytes);
        if result.is_err() {
            self.roll_back();
            return Err(refusal);
        }
        self.journal.mark();
        Ok(())
    }

    /// Evicts what a new budget does not hold, or refuses and leaves no trace. The journal stays open.
    fn move_budget(
        &mut self,
        pool: u8,
        before: Option<u64>,
        now: Option<Bytes>,
    ) -> Result<(), Error> {
        if !self.arenas.has(pool) {
            return self.free_bytes(pool, 0);
        }
        self.journal.start();
        let end = now.map_or(u64::MAX, |now| now.0);
        if let Err(smallest) = self.clear_beyond(pool, end) {
            self.roll_back();
            return Err(Error::Budget {
                pool: PoolId(pool),
                budget: Bytes(before.unwrap_or(u64::MAX)),
                needed: Bytes(smallest),
                smallest: Bytes(smallest),
            });
        }
        self.journal.mark();
        self.move_end(pool, end);
        Ok(())
    }

    /// So many more bytes do not fit, and nothing is left to evict.
    fn short_of(&self, pool: u8, bytes: u64) -> Error {
        let account = self
            .pools
            .get(usize::from(pool))
            .copied()
            .unwrap_or_default();
        let left = account.memory.saturating_add(bytes);
        let budget = account.budget.unwrap_or(u64::MAX);
        let beyond = match self.arenas.has(pool) {
            true => budget.saturating_add(bytes),
            false => 0,
        };
        Error::Budget {
            pool: PoolId(pool),
            budget: Bytes(budget),
            needed: Bytes(left),
            smallest: Bytes(left.max(beyond)),
        }
    }

    /// After a first run that took more than announced.
    fn free_excess(&mut self) -> Result<(), Error> {
        if let Err(Stop::Short(pool)) = self.house_homeless() {
            return Err(self.short_of(pool, 0));
        }
        for pool in 0..self.pools.len() {
            if let Err(stop) = self.make_room(pool as u8, 0) {
                let Some(budget) = self.pools[pool].budget else {
                    return Err(fit::error(stop));
                };
                let left = Bytes(self.pools[pool].memory);
                return Err(Error::Budget {
                    pool: PoolId(pool as u8),
                    budget: Bytes(budget),
                    needed: left,
                    smallest: left,
                });
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Engine {
    /// Everything that decisions depend on, slots that are free and caches left out: equal texts decide alike.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.state.fmt(f)
    }
}
