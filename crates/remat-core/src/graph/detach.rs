//! Overwriting a value that cannot be recomputed: all that its recomputation would need is made independent of it first.

use crate::graph::{Made, Phase};
use crate::transaction::state::State;
use crate::{OpId, StorageId, TensorId};

/// A walk from what an op overwrites for good to what was computed from it.
struct Severed {
    stamp: u32,
    overwritten: Vec<StorageId>,
    /// Storages that cannot be computed again once the op ran, those overwritten constants included.
    doomed: Vec<StorageId>,
}

impl State {
    /// Tensors that must be resident, and pinned, before the op overwrites constants: the nearest referenced dependents of
    /// what it overwrites. Appended to `frontier`.
    pub(crate) fn frontier(&mut self, op: OpId, frontier: &mut Vec<TensorId>) {
        self.sever(op, frontier);
    }

    /// The op overwrites constants now: what hung on their old values, unreferenced or overwritten with them, is lost.
    pub(crate) fn doom_dependents(&mut self, op: OpId) {
        let mut frontier = Vec::new();
        for s in self.sever(op, &mut frontier) {
            let storage = &mut self.graph.storages[s.index()];
            storage.lost = true;
        }
        // Made since the op began, out of the old value.
        for tensor in frontier {
            let s = self.graph.storage_of(tensor);
            if self.graph.storages[s.index()].resident {
                self.pin_storage(s);
                self.to_cut.push(s);
            } else {
                self.graph.storages[s.index()].lost = true;
            }
        }
    }

    /// Walks the dependents; returns the doomed.
    fn sever(&mut self, op: OpId, frontier: &mut Vec<TensorId>) -> Vec<StorageId> {
        let overwritten = self.overwritten(op);
        let constants = overwritten.iter().copied();
        let doomed: Vec<_> = constants
            .filter(|s| self.graph.storages[s.index()].pinned)
            .collect();
        if doomed.is_empty() {
            return doomed;
        }
        let stamp = self.graph.new_stamp();
        let mut severed = Severed {
            stamp,
            overwritten,
            doomed,
        };
        let mut next = 0;
        while let Some(&s) = severed.doomed.get(next) {
            next += 1;
            for place in 0..self.graph.storages[s.index()].readers.len() {
                let reader = self.graph.storages[s.index()].readers[place].op;
                if reader == op {
                    continue;
                }
                if self.graph.ops[reader.index()].phase == Phase::Open {
                    // It reads a value that will not be there again.
                    self.graph.ops[reader.index()].constant = true;
                    continue;
                }
                for index in 0..self.graph.ops[reader.index()].outputs.len() {
                    let output = self.graph.ops[reader.index()].outputs[index];
                    self.visit_dependent(self.graph.storage_of(output), &mut severed, frontier);
                }
            }
        }
        severed.doomed
    }

    fn visit_dependent(
        &mut self,
        s: StorageId,
        severed: &mut Severed,
        frontier: &mut Vec<TensorId>,
    ) {
        let storage = &mut self.graph.storages[s.index()];
        let seen = std::mem::replace(&mut storage.stamp, severed.stamp) == severed.stamp;
        if seen || storage.pinned || storage.lost {
            return;
        }
        // A dependent that the op overwrites as well cannot be kept; what hangs on it is kept instead.
        if storage.refs == 0 || severed.overwritten.contains(&s) {
            severed.doomed.push(s);
            return;
        }
        let views = self.graph.storages[s.index()].views.iter().copied();
        frontier.extend(views.filter(|view| {
            let tensor = &self.graph.tensors[view.index()];
            let announced = tensor
                .op
                .is_some_and(|op| self.graph.ops[op.index()].phase == Phase::Open);
            tensor.refs > 0 && !announced
        }));
    }

    /// Storages whose blocks the op takes over.
    fn overwritten(&self, op: OpId) -> Vec<StorageId> {
        let op = &self.graph.ops[op.index()];
        let blocks = op.made.iter().filter_map(|made| match made {
            Made::InPlace(of) => Some(self.graph.storage_of(op.inputs[*of as usize])),
            _ => None,
        });
        blocks.collect()
    }
}
