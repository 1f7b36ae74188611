//! The order of Sethi and Ullman (1970): every missing ancestor is replayed once, the input with the largest need
//! first, and held until its last use in the plan. DTR's own order locks the inputs of every op on the way down and
//! lets the policy drop storages that the plan needs next; here nothing is held before its time and nothing that the
//! plan still needs is dropped. Under [`ReplayOrder::Fit`](crate::ReplayOrder) both are laid out and the plan that
//! evicts less is taken.

use super::goal::{Attempt, EarlyEviction, InputOrder};
use super::memory_need::MemoryNeeds;
use super::missing::Missing;
use super::rerun::{Blocks, Rerun, rerun};
use crate::graph::{Graph, Made};
use crate::ids::{OpId, StorageId, TensorId};
use crate::transaction::{State, Stop};

/// Buffers of the plan, kept from one to the next.
#[derive(Default)]
pub(super) struct SethiUllman {
    missing: Missing,
    /// Uses to come of each storage, by index.
    uses: Vec<u32>,
    /// Storages with uses.
    needed: Vec<StorageId>,
}

impl SethiUllman {
    /// Lays out the plan; on failure the caller rolls back.
    pub(super) fn attempt(
        &mut self,
        state: &mut State,
        needs: &mut MemoryNeeds,
        attempt: &Attempt<'_>,
    ) -> Result<(), Stop> {
        let targets = &attempt.goal.targets;
        needs.estimate(&mut state.graph, targets);
        self.line_up(&mut state.graph, targets, attempt.strategy.inputs)?;
        self.replay(state, attempt)
    }

    /// Finds the missing ancestors, each once, and counts the uses that each storage has in the plan.
    fn line_up(
        &mut self,
        graph: &mut Graph,
        targets: &[TensorId],
        order: InputOrder,
    ) -> Result<(), Stop> {
        for s in self.needed.drain(..) {
            self.uses[s.index()] = 0;
        }
        self.uses.resize(graph.storages.len(), 0);
        self.missing.find(graph, targets, order)?;
        for index in 0..self.missing.order.len() {
            let op = self.missing.order[index].0;
            for place in 0..graph[op].inputs.len() {
                self.count_use(graph.input(op, place));
            }
        }
        for &target in targets {
            self.count_use(graph.storage_of(target));
        }
        Ok(())
    }

    fn count_use(&mut self, s: StorageId) {
        if self.uses[s.index()] == 0 {
            self.needed.push(s);
        }
        self.uses[s.index()] += 1;
    }

    fn replay(&mut self, state: &mut State, attempt: &Attempt<'_>) -> Result<(), Stop> {
        for &s in &self.needed {
            if state.graph[s].resident {
                state.lock(s);
            }
        }
        if attempt.strategy.early != EarlyEviction::None {
            state.evict_all_candidates();
        }
        state.accounts.begin_attempt();
        for index in 0..self.missing.order.len() {
            let (op, requested) = self.missing.order[index];
            self.lock_outputs_in_use(state, op);
            for place in 0..state.graph[op].inputs.len() {
                let s = state.graph.input(op, place);
                state.touch(s);
                state.lock(s);
                self.use_up(state, s);
            }
            let replay = Rerun {
                op,
                requested,
                early: attempt.strategy.early,
                blocks: Blocks::Anywhere,
                thrash: attempt.thrash,
            };
            rerun(state, replay)?;
        }
        for &target in &attempt.goal.targets {
            let s = state.graph.storage_of(target);
            state.lock(s);
            self.use_up(state, s);
        }
        state.make_room_for_op(attempt.goal.op)
    }

    /// Holds the outputs that come back and that the plan still needs, from the start.
    fn lock_outputs_in_use(&self, state: &mut State, op: OpId) {
        for index in 0..state.graph[op].outputs.len() {
            let s = state.graph.output(op, index);
            let fresh = state.graph[op].made[index] != Made::Alias;
            if fresh && self.uses[s.index()] > 0 && !state.graph[s].resident {
                state.lock(s);
            }
        }
    }

    fn use_up(&mut self, state: &mut State, s: StorageId) {
        self.uses[s.index()] -= 1;
        if self.uses[s.index()] == 0 {
            state.unlock(s);
        }
    }
}
