//! The calls that a front end makes as a step goes on.

use super::validity::{check_input, check_size, check_spec, check_tensor};
use crate::config::{Config, Dealloc};
use crate::error::Error;
use crate::graph::{BanishPlan, Freed, Phase};
use crate::guide::{Actions, Guides};
use crate::ids::{Bytes, DeviceId, OpId, StorageId, TensorId};
use crate::op::{Expected, Finished, OpSpec, Replay, Step};
use crate::replay::{Goal, Planner};
use crate::transaction::{Call, State};
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
/// let weights = engine.constant(Bytes(10), DeviceId(0))?;
/// let fresh = [Output::Fresh { bytes: Bytes(60), device: DeviceId(0) }];
/// let spec = OpSpec {
///     inputs: &[weights],
///     outputs: &fresh,
///     workspace: Bytes(0),
///     workspace_device: DeviceId(0),
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
/// assert_eq!(engine.steps(), [Step::Evict(engine.storage(a).unwrap())]);
/// engine.finish(second, &report)?;
///
/// engine.ensure(&[a])?;
/// let b = engine.storage(engine.outputs(second)[0]).unwrap();
/// assert_eq!(engine.steps(), [Step::Evict(b), Step::Recompute { op: first, mutation: Mutation::Consume }]);
/// assert_eq!(engine.memory(DeviceId(0)), Bytes(70));
/// # Ok::<(), Error>(())
/// ```
pub struct Engine {
    pub(super) state: State,
    pub(super) planner: Planner,
    goal: Goal,
    freed: Freed,
    /// The device for whose memory steps are to be learned from the first replay on.
    pub(super) learns: Option<DeviceId>,
    pub(super) guides: Option<Box<Guides>>,
    /// Whether ops of planned steps may go without records.
    pub(super) forgoes: bool,
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
            state: State::new(&config),
            planner: Planner::new(&config),
            goal: Goal::default(),
            freed: Freed::default(),
            learns: None,
            guides: None,
            forgoes: false,
        }
    }

    /// A non-rematerializable storage (weights, data, anything made elsewhere), resident and pinned, with one
    /// reference. Its bytes are there already: steps may follow that evict others to get back under the budget.
    ///
    /// # Errors
    /// [`Error::Budget`] when nothing more can be evicted; the constant is then not registered.
    pub fn constant(&mut self, bytes: Bytes, device: DeviceId) -> Result<TensorId, Error> {
        check_size(bytes.0)?;
        let state = &mut self.state;
        state.open_call();
        state.free_bytes(device.0, bytes.0)?;
        let tensor = state.add_constant(bytes, device)?;
        state.assign_constant(state.graph.storage_of(tensor));
        state.journal.stop();
        state.call = Call::Constant(tensor);
        if let Some(guides) = &mut self.guides {
            guides.constant(&state.graph, tensor);
        }
        Ok(tensor)
    }

    /// Announces an op. On success the inputs are locked, bytes for outputs and workspace are reserved, and
    /// [`steps`](Engine::steps) holds all that must be performed before it may run. The outputs get ids at once
    /// ([`outputs`](Engine::outputs)), each with one reference.
    ///
    /// An op that writes in place over a constant destroys it for good: all that is referenced and was computed from
    /// the old value is first brought back and pinned, and the op's outputs are constants too.
    ///
    /// # Errors
    /// [`Error::Budget`], [`Error::Thrash`], [`Error::PlanLimit`]; found before anything is performed.
    /// [`Error::Protocol`] for unknown ids or indices, [`Error::Overflow`] for sizes that together are beyond 63 bits.
    pub fn begin(&mut self, op: &OpSpec<'_>) -> Result<OpId, Error> {
        self.begin_expecting(op, Expected::default())
    }

    /// [`begin`](Engine::begin) for a front end that knows what the op will cost: scores taken while its inputs are
    /// brought back count that cost already, as the reference simulator does. In an arena cost and kind say where
    /// outputs are placed.
    ///
    /// # Errors
    /// As [`begin`](Engine::begin).
    pub fn begin_expecting(
        &mut self,
        op: &OpSpec<'_>,
        expected: impl Into<Expected>,
    ) -> Result<OpId, Error> {
        let expected = expected.into();
        check_spec(&self.state, op)?;
        check_size(expected.cost.0)?;
        if self.learns.is_some() {
            self.start_to_learn();
        }
        let state = &mut self.state;
        state.open_call();
        if let Some(guides) = &mut self.guides {
            guides.announce(&state.graph, &state.counters, op);
            for storage in guides.take_unkept() {
                state.graph[storage].kept = false;
            }
        }
        let guides = self.guides.as_ref();
        let forgoes = guides.is_some_and(|guides| guides.forgoes(&state.graph, op));
        let replay = if forgoes {
            Replay::Forbidden
        } else {
            op.replay
        };
        let id = match state.graph.add_op(&OpSpec { replay, ..*op }, expected) {
            Ok(id) => id,
            Err(fault) => {
                self.guides.iter_mut().for_each(|guides| guides.refused());
                return Err(fault);
            }
        };
        state.note_announced(id);
        self.goal.targets.clear();
        state.graph.detach(id, &mut self.goal.targets);
        self.goal.inputs_from = self.goal.targets.len();
        self.goal.targets.extend_from_slice(op.inputs);
        self.goal.op = Some(id);
        if let Err(refusal) = plan(state, &mut self.planner, &self.goal, &mut self.guides) {
            state.discard(id);
            if let Some(guides) = &mut self.guides {
                guides.refused();
            }
            return Err(refusal);
        }
        state.take_sought_bytes();
        state.assign_blocks(id);
        for &target in &self.goal.targets[..self.goal.inputs_from] {
            let storage = state.graph.storage_of(target);
            state.pin_storage(storage);
            state.collection.to_cut.push(storage);
            state.unlock(storage);
        }
        if let Some(guides) = &mut self.guides {
            guides.note_steps(&state.steps);
            guides.note_pinned(&state.graph, &state.collection.pinned);
            guides.begun(&state.graph, id, op);
            for &storage in guides.kept_results() {
                state.graph[storage].kept = true;
            }
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
        if let Some(guides) = &mut self.guides {
            guides.finish(&self.state.graph, op, report);
        }
        self.state.complete(op, report);
        if let Some(guides) = &mut self.guides {
            let (graph, counters) = (&self.state.graph, &self.state.counters);
            if guides.finished(graph, op, counters) {
                self.state.eviction.forget_scores(&mut self.state.graph);
            }
        }
        self.state.cut_pinned();
        self.state.journal.stop();
        self.state.free_excess()
    }

    /// The op begun raised an error: its outputs never were, its inputs are unlocked.
    pub fn cancel(&mut self, op: OpId) {
        let record = self.state.graph.ops.get(op.index());
        if record.is_some_and(|record| record.phase == Phase::Open) {
            self.state.open_call();
            if let Some(guides) = &mut self.guides {
                guides.cancel(&self.state.graph, op, Actions::Performed);
            }
            self.state.give_up(op);
            self.state.cut_pinned();
        }
    }

    /// Only the first `performed` of the latest steps were performed. The state becomes what they left, and the call
    /// that yielded them (op, ensure, ...) counts as cancelled.
    pub fn abort(&mut self, performed: usize) {
        if let Some(guides) = &mut self.guides {
            match self.state.call {
                Call::Begin(op) => guides.cancel(&self.state.graph, op, Actions::CutShort),
                Call::Constant(tensor) => guides.release(&self.state.graph, tensor),
                Call::Plain | Call::Plan | Call::Budget(..) => {}
            }
        }
        self.state.abort(performed);
    }

    /// One more reference from outside.
    ///
    /// # Errors
    /// [`Error::Protocol`] for a tensor that is unknown or was let go.
    pub fn retain(&mut self, tensor: TensorId) -> Result<(), Error> {
        check_tensor(&self.state, tensor)?;
        let graph = &mut self.state.graph;
        let s = graph.storage_of(tensor);
        let storage = &mut graph[s];
        storage.refs = storage.refs.checked_add(1).ok_or(Error::Overflow)?;
        let first = storage.refs == 1;
        graph[tensor].refs += 1;
        if first {
            self.state.note_references(s);
        }
        if let Some(guides) = &mut self.guides {
            guides.retained(&self.state.graph, tensor);
        }
        Ok(())
    }

    /// One reference less. Steps may follow (the storage's own eviction, unless it is
    /// [kept](Engine::kept_results), and that of what only it needed).
    ///
    /// # Errors
    /// [`Error::Protocol`] for a tensor without a reference.
    pub fn release(&mut self, tensor: TensorId) -> Result<(), Error> {
        check_tensor(&self.state, tensor)?;
        if self.state.graph[tensor].refs == 0 {
            return Err(Error::Protocol("release without a reference"));
        }
        self.state.open_call();
        if let Some(guides) = &mut self.guides {
            guides.release(&self.state.graph, tensor);
        }
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
        if let Some(guides) = &mut self.guides {
            guides.note_steps(&self.state.steps);
            guides.ensured(tensors);
        }
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
        self.state.collection.to_cut.push(storage);
        self.state.journal.stop();
        if let Some(guides) = &mut self.guides {
            guides.note_steps(&self.state.steps);
            guides.pinned(tensor);
        }
        Ok(())
    }

    /// Constants that the program dropped may still be needed to recompute something. Says which of them, from the
    /// first on, to banish together, and which tensors to [`pin`](Engine::pin) before: most bytes freed beyond those
    /// pinned, and no fewer than those. Once the tensors are pinned and the constants released, the constants' bytes
    /// are free (DTR appendix C.5). Changes nothing itself.
    ///
    /// Takes time linear in what was computed from the constants up to those tensors.
    ///
    /// # Errors
    /// [`Error::Protocol`] for unknown tensors and those that are no constants.
    pub fn plan_banish(&mut self, constants: &[TensorId]) -> Result<BanishPlan, Error> {
        for &tensor in constants {
            check_tensor(&self.state, tensor)?;
            let storage = self.state.graph.storage_of(tensor);
            if !self.state.graph[storage].pinned {
                return Err(Error::Protocol("only constants are banished"));
            }
        }
        Ok(self.state.graph.plan_banish(constants))
    }

    fn plan_targets(&mut self, tensors: &[TensorId]) -> Result<(), Error> {
        tensors
            .iter()
            .try_for_each(|&tensor| check_input(&self.state, tensor))?;
        let state = &mut self.state;
        state.open_call();
        self.goal.targets.clear();
        self.goal.targets.extend_from_slice(tensors);
        self.goal.inputs_from = tensors.len();
        self.goal.op = None;
        self.planner.plan(state, &self.goal)?;
        for &tensor in tensors {
            state.unlock(state.graph.storage_of(tensor));
        }
        state.call = Call::Plan;
        Ok(())
    }

    /// Changes a device's budget. Steps may follow.
    ///
    /// # Errors
    /// [`Error::Budget`] if what cannot be evicted does not fit; the old budget stays.
    pub fn set_budget(&mut self, device: DeviceId, budget: Option<Bytes>) -> Result<(), Error> {
        let state = &mut self.state;
        state.open_call();
        let before = std::mem::replace(
            &mut state.accounts.of(device.0).budget,
            budget.map(|bytes| bytes.0),
        );
        if let Err(refusal) = state.move_budget(device.0, before, budget) {
            state.accounts.of(device.0).budget = before;
            return Err(refusal);
        }
        state.journal.stop();
        state.call = Call::Budget(device.0, before);
        Ok(())
    }

    /// Whether [`collected`](Engine::collected) would hand anything over.
    #[inline]
    pub fn has_collected(&self) -> bool {
        self.state.collection.has_freed()
    }

    /// Hands over the ids that [`Lineage::Collect`](crate::Lineage) freed since the last call; from now on later calls
    /// may use them again, and not before. Each op's [`outputs`](Engine::outputs) can be read until then.
    pub fn collected(&mut self) -> Collected<'_> {
        let graph = &mut self.state.graph;
        self.state.collection.hand_over(graph, &mut self.freed);
        if let Some(guides) = &mut self.guides {
            guides.freed(&self.freed.ops, &self.freed.storages);
        }
        Collected {
            ops: &self.freed.ops,
            storages: &self.freed.storages,
        }
    }
}

/// Lays out what is to happen before an op: as planned, if the op is one of a planned step and that fits.
fn plan(
    state: &mut State,
    planner: &mut Planner,
    goal: &Goal,
    guides: &mut Option<Box<Guides>>,
) -> Result<(), Error> {
    if let Some(guides) = guides.as_mut().filter(|guides| !guides.before.is_empty()) {
        if let Ok(settled) = planner.plan_guided(state, goal, &guides.before) {
            guides.count_settled(settled as u64);
            guides.count_places(state.demand.placed, state.demand.displaced);
            return Ok(());
        }
        guides.count_refused();
    }
    planner.plan(state, goal)
}

impl fmt::Debug for Engine {
    /// Everything that decisions depend on, slots that are free and caches left out: equal texts decide alike.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.state.fmt(f)
    }
}
