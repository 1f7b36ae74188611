//! Detaching: before an op overwrites a value that cannot be recomputed, the dependents of that value are made
//! independent of it.

use super::links::Graph;
use super::records::{Made, Phase};
use crate::ids::{OpId, StorageId, TensorId};
use smallvec::SmallVec;

/// Storages, few of which an op overwrites: an optimizer's step asks once an op.
type Few = SmallVec<[StorageId; 4]>;

/// A walk from what an op overwrites for good to what was computed from it.
struct Detached {
    stamp: u32,
    overwritten: Few,
    /// Storages that cannot be computed again once the op ran, those overwritten constants included.
    lost: Few,
}

impl Graph {
    /// Walks from what an op overwrites for good to what was computed from it. Appends to `frontier` the tensors that
    /// must be resident, and pinned, before: the nearest referenced dependents. Returns the storages that are lost
    /// then.
    pub(crate) fn detach(&mut self, op: OpId, frontier: &mut Vec<TensorId>) -> Few {
        let writes = |made: &Made| matches!(made, Made::InPlace(_));
        if !self[op].made.iter().any(writes) {
            return Few::new();
        }
        let overwritten = self.overwritten(op);
        let constants = overwritten.iter().copied();
        let lost: Few = constants.filter(|&s| self[s].pinned).collect();
        if lost.is_empty() {
            return lost;
        }
        let stamp = self.new_stamp();
        let mut detached = Detached {
            stamp,
            overwritten,
            lost,
        };
        let mut next = 0;
        while let Some(&s) = detached.lost.get(next) {
            next += 1;
            for place in 0..self[s].readers.len() {
                let reader = self[s].readers[place].op;
                if reader == op {
                    continue;
                }
                if self[reader].phase == Phase::Open {
                    // It reads a value that will not be there again.
                    self[reader].constant = true;
                    continue;
                }
                for index in 0..self[reader].outputs.len() {
                    let output = self[reader].outputs[index];
                    self.visit_dependent(self.storage_of(output), &mut detached, frontier);
                }
            }
        }
        detached.lost
    }

    fn visit_dependent(
        &mut self,
        s: StorageId,
        detached: &mut Detached,
        frontier: &mut Vec<TensorId>,
    ) {
        let storage = &mut self[s];
        let seen = std::mem::replace(&mut storage.stamp, detached.stamp) == detached.stamp;
        if seen || storage.pinned || storage.lost {
            return;
        }
        // A dependent that the op overwrites as well cannot be kept; what hangs on it is kept instead.
        if storage.refs == 0 || detached.overwritten.contains(&s) {
            detached.lost.push(s);
            return;
        }
        let views = self[s].views.iter().copied();
        frontier.extend(views.filter(|view| {
            let tensor = &self[*view];
            let announced = tensor.op.is_some_and(|op| self[op].phase == Phase::Open);
            tensor.refs > 0 && !announced
        }));
    }

    /// Storages whose blocks the op takes over.
    fn overwritten(&self, op: OpId) -> Few {
        let op = &self[op];
        let blocks = op.made.iter().filter_map(|made| match made {
            Made::InPlace(of) => Some(self.storage_of(op.inputs[*of as usize])),
            _ => None,
        });
        blocks.collect()
    }
}
