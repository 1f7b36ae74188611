//! Bringing tensors back: the replay of missing ancestors with an explicit stack (DTR appendix C.4, "(Re)materialization";
//! rules 2 to 5 of the reference).

use crate::graph::{Life, Made, NONE};
use crate::journal::Entry;
use crate::replay::sethi_ullman::Line;
use crate::transaction::state::{State, Stop};
use crate::{Mutation, OpId, Step, StorageId, TensorId, ThrashLimit};

/// What a plan must reach: all targets resident at once, then room for an op.
#[derive(Default)]
pub(crate) struct Goal {
    pub(crate) targets: Vec<TensorId>,
    /// The op that is to run for the first time; its inputs are the targets from `inputs_from` on.
    pub(crate) op: Option<OpId>,
    pub(crate) inputs_from: usize,
}

/// In which order an op's inputs are seen to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InputOrder {
    Given,
    HungriestFirst,
    HungriestLast,
}

/// Which resident inputs are locked before the missing ones are seen to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// Those of every op.
    All,
    /// The goal's own.
    Targets,
    /// None: each is locked when its turn comes.
    Nothing,
}

/// What is evicted beyond need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Thrift {
    /// Nothing.
    None,
    /// Every candidate at the start.
    Clear,
    /// Every candidate at the start and every storage as soon as nothing holds it.
    Bare,
}

/// How the missing ancestors are gone through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Walk {
    /// Each op's inputs as they are needed; what was dropped meanwhile is brought back again.
    Nested,
    /// Each once, held until its last use.
    Once,
    /// Each when it is read next, held as its next use is near.
    Ahead,
}

/// An order of replays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Style {
    pub(crate) walk: Walk,
    pub(crate) hold: Hold,
    pub(crate) order: InputOrder,
    pub(crate) thrift: Thrift,
    /// Most replays that the attempt may take.
    pub(crate) bound: u64,
}

/// DTR's own order.
pub(crate) const DTR: Style = Style {
    walk: Walk::Nested,
    hold: Hold::All,
    order: InputOrder::Given,
    thrift: Thrift::None,
    bound: u64::MAX,
};

/// An op whose inputs are being seen to.
#[derive(Clone, Copy)]
struct Frame {
    /// `None`: the goal itself.
    replay: Option<(OpId, TensorId)>,
    /// Where its inputs begin in `pending`.
    base: usize,
}

/// Stacks of the replay under way, kept for their buffers.
#[derive(Default)]
pub(crate) struct Replays {
    frames: Vec<Frame>,
    /// Inputs not yet locked, of all frames; the next one last.
    pending: Vec<TensorId>,
    pub(crate) estimated: Vec<(OpId, bool)>,
    pub(crate) hunger: Vec<(u64, u64)>,
    pub(crate) estimate_stamp: u32,
    pub(crate) line: Line,
}

impl State {
    /// Lays out one way to the goal. On failure the state is left where it got stuck; the caller rolls back.
    pub(crate) fn attempt(&mut self, goal: &Goal, style: Style) -> Result<(), Stop> {
        match style.walk {
            Walk::Nested => {}
            Walk::Once => return self.attempt_once(goal, style),
            Walk::Ahead => return self.attempt_ahead(goal, style),
        }
        self.replays.frames.clear();
        self.replays.pending.clear();
        for &input in &goal.targets[goal.inputs_from..] {
            self.touch(self.graph.storage_of(input));
        }
        for &target in &goal.targets {
            self.await_input(target, style.hold != Hold::Nothing);
        }
        if style.thrift != Thrift::None {
            self.evict_all_candidates();
        }
        self.pools
            .iter_mut()
            .for_each(|pool| pool.high = pool.memory);
        if style.order != InputOrder::Given {
            self.estimate_needs(&goal.targets);
        }
        self.arrange_pending(0, style.order);
        self.replays.frames.push(Frame {
            replay: None,
            base: 0,
        });
        self.run_frames(style)?;
        self.make_room_for_op(goal.op)
    }

    fn run_frames(&mut self, style: Style) -> Result<(), Stop> {
        let first = self.counters.replays;
        while let Some(&frame) = self.replays.frames.last() {
            match self.replays.pending.last() {
                Some(&tensor) if self.replays.pending.len() > frame.base => {
                    if self.graph.is_defined(tensor) {
                        self.replays.pending.pop();
                        self.lock(self.graph.storage_of(tensor));
                    } else {
                        self.enter(tensor, style)?;
                    }
                }
                _ => {
                    if let Some((op, requested)) = frame.replay {
                        if self.counters.replays - first >= style.bound {
                            return Err(Stop::Work);
                        }
                        self.replay(op, requested, style.thrift)?;
                    }
                    self.replays.frames.pop();
                }
            }
        }
        Ok(())
    }

    /// Starts on the op that makes a missing tensor (rule 2).
    fn enter(&mut self, tensor: TensorId, style: Style) -> Result<(), Stop> {
        let op = self.graph.tensors[tensor.index()].op.ok_or(Stop::Lost)?;
        let base = self.replays.pending.len();
        let count = self.graph.ops[op.index()].inputs.len();
        for index in 0..count {
            let input = self.graph.ops[op.index()].inputs[index];
            self.touch(self.graph.storage_of(input));
        }
        for index in 0..count {
            let input = self.graph.ops[op.index()].inputs[index];
            self.await_input(input, style.hold == Hold::All);
        }
        self.arrange_pending(base, style.order);
        self.replays.frames.push(Frame {
            replay: Some((op, tensor)),
            base,
        });
        Ok(())
    }

    fn await_input(&mut self, input: TensorId, hold: bool) {
        if hold && self.graph.is_defined(input) {
            self.lock(self.graph.storage_of(input));
        } else {
            self.replays.pending.push(input);
        }
    }

    /// Puts the pending inputs from `base` on into their order, the first to be seen to last.
    fn arrange_pending(&mut self, base: usize, order: InputOrder) {
        let mut pending = std::mem::take(&mut self.replays.pending);
        pending[base..].reverse();
        match order {
            InputOrder::Given => {}
            InputOrder::HungriestFirst => pending[base..].sort_by_key(|&input| self.hunger(input)),
            InputOrder::HungriestLast => {
                pending[base..].sort_by_key(|&input| std::cmp::Reverse(self.hunger(input)))
            }
        }
        self.replays.pending = pending;
    }

    /// Replays an op whose inputs are all locked (rules 3 to 5).
    pub(crate) fn replay(
        &mut self,
        op: OpId,
        requested: TensorId,
        thrift: Thrift,
    ) -> Result<(), Stop> {
        let mutation = self.mutation(op);
        self.seek_bytes(op, mutation);
        self.request_blocks(op, mutation);
        self.make_all_room()?;
        let cost = self.graph.ops[op.index()].cost;
        let clock = self
            .clock
            .checked_add(cost)
            .filter(|&clock| clock <= i64::MAX as u64)
            .ok_or(Stop::Overflow)?;
        self.push_step(Step::Recompute { op, mutation });
        self.journal.write(Entry::Replayed(op));
        self.clock = clock;
        self.counters.replays += 1;
        self.counters.replayed_cost.0 += cost;
        self.take_sought_bytes();
        self.install_outputs(op, mutation);
        self.list_outputs(op, requested, thrift);
        self.unlock_inputs(op, self.graph.storage_of(requested), thrift);
        self.note_for_banishing(op);
        self.check_thrash()
    }

    /// Inputs that the op writes into are consumed if nothing else holds them and every value is wanted.
    fn mutation(&self, op: OpId) -> Mutation {
        let op = &self.graph.ops[op.index()];
        let storage =
            |tensor: &TensorId| &self.graph.storages[self.graph.storage_of(*tensor).index()];
        let all = op.made.iter().zip(&op.outputs).all(|(made, output)| {
            let Made::InPlace(of) = *made else {
                return true;
            };
            let old_id = self.graph.storage_of(op.inputs[of as usize]);
            let (old, new) = (&self.graph.storages[old_id.index()], storage(output));
            let own = op
                .inputs
                .iter()
                .filter(|&&input| self.graph.storage_of(input) == old_id)
                .count();
            !new.resident && new.live_views > 0 && !old.pinned && old.locks as usize == own
        });
        if all {
            Mutation::Consume
        } else {
            Mutation::Copy
        }
    }

    /// Sets each pool's `need` to what the op takes from it, outputs that are there already included (rule 3).
    pub(crate) fn seek_bytes(&mut self, op: OpId, mutation: Mutation) {
        self.pools.iter_mut().for_each(|pool| pool.need = 0);
        for index in 0..self.graph.ops[op.index()].outputs.len() {
            let record = &self.graph.ops[op.index()];
            let takes = match record.made[index] {
                Made::Fresh => true,
                Made::Alias => false,
                Made::InPlace(_) => mutation == Mutation::Copy,
            };
            if takes {
                let storage =
                    &self.graph.storages[self.graph.storage_of(record.outputs[index]).index()];
                let (pool, bytes) = (storage.pool, storage.bytes);
                let pool = self.pool(pool);
                pool.need = pool.need.saturating_add(bytes);
            }
        }
        let record = &self.graph.ops[op.index()];
        let (workspace, pool) = (record.workspace, record.workspace_pool);
        if workspace > 0 {
            let pool = self.pool(pool);
            pool.need = pool.need.saturating_add(workspace);
        }
    }

    pub(crate) fn make_all_room(&mut self) -> Result<(), Stop> {
        for pool in 0..self.pools.len() {
            self.make_room(pool as u8, self.pools[pool].need)?;
        }
        self.place_requests()
    }

    pub(crate) fn take_sought_bytes(&mut self) {
        for pool in 0..self.pools.len() {
            self.grow(pool as u8, self.pools[pool].need);
        }
    }

    pub(crate) fn make_room_for_op(&mut self, op: Option<OpId>) -> Result<(), Stop> {
        match op {
            Some(op) => {
                self.seek_bytes(op, Mutation::Consume);
                self.request_blocks(op, Mutation::Consume);
                self.make_all_room()?;
                self.pools.iter_mut().for_each(|pool| {
                    pool.high = pool.high.max(pool.memory.saturating_add(pool.need));
                });
                Ok(())
            }
            None => {
                self.arenas.requests.clear();
                Ok(())
            }
        }
    }

    /// Missing outputs are there now; the bytes of those that were there before are given back.
    fn install_outputs(&mut self, op: OpId, mutation: Mutation) {
        self.install_blocks(op, |state, s| !state.graph.storages[s.index()].resident);
        for index in 0..self.graph.ops[op.index()].outputs.len() {
            let record = &self.graph.ops[op.index()];
            let made = record.made[index];
            let s = self.graph.storage_of(record.outputs[index]);
            let storage = &self.graph.storages[s.index()];
            let (pool, bytes, there) = (storage.pool, storage.bytes, storage.resident);
            match made {
                Made::Alias => {}
                Made::InPlace(of) if mutation == Mutation::Consume => {
                    let old = self
                        .graph
                        .storage_of(self.graph.ops[op.index()].inputs[of as usize]);
                    self.lose_value(old);
                    self.hand_block_over(old, s);
                    self.gain_value(s);
                }
                Made::Fresh | Made::InPlace(_) if there => self.shrink(pool, bytes),
                Made::Fresh | Made::InPlace(_) => self.gain_value(s),
            }
        }
        self.define_outputs(op);
        let record = &self.graph.ops[op.index()];
        let (workspace, pool) = (record.workspace, record.workspace_pool);
        self.shrink(pool, workspace);
    }

    /// The op ran: those of its outputs that somebody can ask for can be read.
    pub(crate) fn define_outputs(&mut self, op: OpId) {
        for index in 0..self.graph.ops[op.index()].outputs.len() {
            let output = self.graph.ops[op.index()].outputs[index];
            let there = self.graph.storages[self.graph.storage_of(output).index()].resident;
            if there && self.graph.tensors[output.index()].life == Life::Wanted {
                self.set_defined(output);
            }
        }
    }

    /// Storages that became resident are candidates now, the requested tensor's last (rule 4).
    fn list_outputs(&mut self, op: OpId, requested: TensorId, thrift: Thrift) {
        let last = self.graph.storage_of(requested);
        for index in 0..self.graph.ops[op.index()].outputs.len() {
            let record = &self.graph.ops[op.index()];
            let s = self.graph.storage_of(record.outputs[index]);
            if record.made[index] != Made::Alias && s != last {
                self.list(s);
                self.evict_if_bare(s, thrift);
                self.evict_if_dead(s);
            }
        }
        self.list(last);
    }

    fn unlock_inputs(&mut self, op: OpId, keep: StorageId, thrift: Thrift) {
        for index in 0..self.graph.ops[op.index()].inputs.len() {
            let s = self
                .graph
                .storage_of(self.graph.ops[op.index()].inputs[index]);
            self.unlock(s);
            if s != keep {
                self.evict_if_bare(s, thrift);
            }
        }
    }

    fn evict_if_bare(&mut self, s: StorageId, thrift: Thrift) {
        if thrift == Thrift::Bare && self.graph.storages[s.index()].slot != NONE {
            self.evict(s);
        }
    }

    /// What nobody can ask for does not stay.
    pub(crate) fn evict_if_dead(&mut self, s: StorageId) {
        let storage = &self.graph.storages[s.index()];
        if storage.gone() && storage.resident {
            self.evict(s);
        }
    }

    pub(crate) fn evict_all_candidates(&mut self) {
        for (_, s) in self.candidates.in_order() {
            self.evict(s);
        }
    }

    /// The thrash limit (rule 6).
    fn check_thrash(&self) -> Result<(), Stop> {
        let replayed = self.counters.replayed_cost.0;
        let limit = match self.thrash {
            _ if self.unlimited => return Ok(()),
            ThrashLimit::Never => return Ok(()),
            ThrashLimit::Total(limit) => limit.0,
            ThrashLimit::Ratio(_) if self.counters.first_cost.0 < 1_000_000_000 => return Ok(()),
            ThrashLimit::Ratio(ratio) => (self.counters.first_cost.0 as f64 * ratio) as u64,
        };
        if replayed > limit {
            return Err(Stop::Thrash { replayed, limit });
        }
        Ok(())
    }
}
