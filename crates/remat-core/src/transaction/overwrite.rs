//! Overwriting a value that cannot be recomputed: its dependents are detached from it first.

use super::state::State;
use crate::ids::OpId;

impl State {
    /// The op overwrites constants now: their unreferenced dependents, and those overwritten with them, are lost.
    pub(super) fn lose_dependents(&mut self, op: OpId) {
        let mut frontier = Vec::new();
        for s in self.graph.detach(op, &mut frontier) {
            self.graph[s].lost = true;
        }
        // Made since the op began, out of the old value.
        for tensor in frontier {
            let s = self.graph.storage_of(tensor);
            if self.graph[s].resident {
                self.pin_storage(s);
                self.collection.to_cut.push(s);
            } else {
                self.graph[s].lost = true;
            }
        }
    }
}
