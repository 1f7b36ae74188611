//! Goals that need no plan: all targets are resident, and the op fits beside all that is.

use super::goal::Goal;
use crate::op::Mutation;
use crate::transaction::State;

impl State {
    /// Reaches the goal if nothing has to be replayed or evicted for it. Every order of replays lays out the same then:
    /// nothing. Returns whether it did; else nothing changed.
    ///
    /// Most ops of most steps come here, so this is all that they take of the planner.
    pub(super) fn reach_at_once(&mut self, goal: &Goal) -> bool {
        let missing = |&target: &_| !self.graph.is_defined(target);
        if self.arenas.any() || goal.targets.iter().any(missing) {
            return false;
        }
        if let Some(op) = goal.op {
            self.seek_bytes(op, Mutation::Consume);
            if self.accounts.exceed() {
                return false;
            }
        }
        self.journal.start();
        self.demand.requests.clear();
        for &input in goal.inputs() {
            self.touch(self.graph.storage_of(input));
        }
        for &target in &goal.targets {
            self.lock(self.graph.storage_of(target));
        }
        self.accounts.begin_attempt();
        if goal.op.is_some() {
            self.accounts.note_sought();
        }
        self.journal.mark();
        true
    }
}
