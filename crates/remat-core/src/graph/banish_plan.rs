//! Letting constants go that only the lineage still needs: their *heirs*, the nearest referenced tensors computed from them,
//! are to be pinned instead (banishing, DTR appendix C.5, at the front end's wish).

use crate::graph::Phase;
use crate::transaction::state::State;
use crate::{Bytes, StorageId, TensorId};

/// What letting go of constants would take, see [`Engine::heirs`](crate::Engine::heirs).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heirs {
    /// So many of the constants asked about, from the first on, are worth letting go together.
    pub constants: usize,
    /// Tensors to pin first.
    pub tensors: Vec<TensorId>,
    /// Bytes of those constants.
    pub freed: Bytes,
    /// Bytes of the storages of those tensors.
    pub pinned: Bytes,
}

impl State {
    /// The first constants that free most beyond what has to be pinned for them. Linear in what hangs on them.
    pub(crate) fn heirs(&mut self, constants: &[TensorId]) -> Heirs {
        let stamp = self.graph.new_stamp();
        let mut best = Heirs::default();
        let mut tensors: Vec<TensorId> = Vec::new();
        let (mut freed, mut pinned) = (0u64, 0u64);
        let mut lost: Vec<StorageId> = Vec::new();
        let mut kept = 0;
        'constants: for (before, &constant) in constants.iter().enumerate() {
            let root = self.graph.storage_of(constant);
            freed = freed.saturating_add(self.graph.storages[root.index()].bytes);
            lost.push(root);
            while let Some(s) = lost.pop() {
                for place in 0..self.graph.storages[s.index()].readers.len() {
                    let reader = self.graph.storages[s.index()].readers[place].op;
                    if self.graph.ops[reader.index()].phase != Phase::Done {
                        break 'constants;
                    }
                    for index in 0..self.graph.ops[reader.index()].outputs.len() {
                        let output = self.graph.ops[reader.index()].outputs[index];
                        let d = self.graph.storage_of(output);
                        let storage = &mut self.graph.storages[d.index()];
                        let seen = std::mem::replace(&mut storage.stamp, stamp) == stamp;
                        if seen || storage.pinned || storage.lost || storage.gone() {
                            continue;
                        }
                        if storage.refs == 0 {
                            lost.push(d);
                            continue;
                        }
                        pinned = pinned.saturating_add(storage.bytes);
                        let views = storage.views.iter().copied();
                        let referenced =
                            |view: &TensorId| self.graph.tensors[view.index()].refs > 0;
                        tensors.extend(views.filter(referenced));
                    }
                }
            }
            let gain = freed.saturating_sub(pinned);
            if gain > best.freed.0 - best.pinned.0 {
                best = Heirs {
                    constants: before + 1,
                    tensors: Vec::new(),
                    freed: Bytes(freed),
                    pinned: Bytes(pinned),
                };
                kept = tensors.len();
            }
        }
        tensors.truncate(kept);
        best.tensors = tensors;
        best
    }
}
