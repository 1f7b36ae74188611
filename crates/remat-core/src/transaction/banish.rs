//! Banishing ([`Dealloc::Banish`], DTR appendix C.5): a storage that nobody references is freed for good once none of
//! its dependents is evicted. The dependents are pinned, since they could not be recomputed any more. Constants are
//! banished too. The engine tries it when the last reference is dropped, when an op that reads the storage is done, and
//! whenever a dependent came back (once the plan is done: within a plan nothing is given up for good).

use super::state::State;
use crate::config::Dealloc;
use crate::eviction::Change;
use crate::graph::{NONE, Phase};
use crate::ids::{OpId, StorageId};

impl State {
    /// The inputs of a replayed op may perhaps be banished when the plan is done.
    pub(crate) fn note_for_banishing(&mut self, op: OpId) {
        if self.dealloc != Dealloc::Banish {
            return;
        }
        for place in 0..self.graph[op].inputs.len() {
            let input = self.graph[op].inputs[place];
            let s = self.graph.storage_of(input);
            if self.graph[s].refs == 0 {
                self.to_banish.push(s);
            }
        }
    }

    /// Banishes the inputs of a finished op, and of the ops replayed for it, where that can be.
    pub(crate) fn banish_inputs(&mut self, op: OpId) {
        if self.dealloc != Dealloc::Banish {
            return;
        }
        while let Some(s) = self.to_banish.pop() {
            self.banish_if_free(s);
        }
        for place in 0..self.graph[op].inputs.len() {
            let input = self.graph[op].inputs[place];
            self.banish_if_free(self.graph.storage_of(input));
        }
    }

    /// Banishes a storage without references and without evicted dependents. Takes time linear in its dependents.
    pub(crate) fn banish_if_free(&mut self, s: StorageId) {
        let storage = &self.graph[s];
        let idle =
            storage.used && storage.refs == 0 && storage.locks == 0 && !storage.unreachable();
        if self.dealloc != Dealloc::Banish || !idle {
            return;
        }
        let mut dependents = Vec::new();
        for reader in &storage.readers {
            let op = &self.graph[reader.op];
            if op.phase != Phase::Done {
                return;
            }
            for &output in &op.outputs {
                let d = self.graph.storage_of(output);
                let dependent = &self.graph[d];
                if d == s || dependent.unreachable() {
                    continue;
                }
                if !dependent.resident {
                    return;
                }
                dependents.push(d);
            }
        }
        for d in dependents {
            if !self.graph[d].pinned {
                self.pin_storage(d);
                self.collection.to_cut.push(d);
            }
        }
        self.free_for_good(s);
    }

    fn free_for_good(&mut self, s: StorageId) {
        self.void_neighbourhood(s, Change::Other);
        self.graph[s].banished = true;
        self.graph[s].pinned = false;
        if self.graph[s].resident {
            self.evict(s);
        } else if self.graph[s].node != NONE {
            self.leave_component(s);
        }
    }
}
