//! Lineage collection ([`Lineage::Collect`]): the tensors that it found unreachable, and the ids that it freed.

use super::links::Graph;
use super::records::Life;
use crate::config::Lineage;
use crate::ids::{OpId, StorageId, TensorId};

/// Tensors to follow up, and ids that were freed and not yet handed over.
pub(crate) struct Collection {
    lineage: Lineage,
    /// Tensors that nobody can ask for any more, to be followed up.
    unreachable: Vec<TensorId>,
    /// Pinned by a plan that may still be aborted; their lineage is cut once it cannot.
    pub(crate) to_cut: Vec<StorageId>,
    /// Pinned by the call under way.
    pub(crate) pinned: Vec<StorageId>,
    pub(crate) freed_ops: Vec<OpId>,
    pub(crate) freed_storages: Vec<StorageId>,
    pub(crate) freed_tensors: Vec<TensorId>,
}

/// Ids that were freed and are now handed over.
#[derive(Default)]
pub(crate) struct Freed {
    pub(crate) ops: Vec<OpId>,
    pub(crate) storages: Vec<StorageId>,
}

impl Collection {
    pub(crate) fn new(lineage: Lineage) -> Collection {
        Collection {
            lineage,
            unreachable: Vec::new(),
            to_cut: Vec::new(),
            pinned: Vec::new(),
            freed_ops: Vec::new(),
            freed_storages: Vec::new(),
            freed_tensors: Vec::new(),
        }
    }

    /// Whether what nothing can ask for is forgotten.
    pub(crate) fn collects(&self) -> bool {
        self.lineage == Lineage::Collect
    }

    /// A count of the tensor went down.
    pub(crate) fn note_loss(&mut self, graph: &mut Graph, t: TensorId) {
        let wanted = graph.is_wanted(t);
        let tensor = &mut graph[t];
        if self.collects() && !wanted && tensor.life == Life::Wanted {
            tensor.life = Life::Queued;
            self.unreachable.push(t);
        }
    }

    /// The next tensor to follow up.
    pub(crate) fn next(&mut self) -> Option<TensorId> {
        self.unreachable.pop()
    }

    /// Whether ids were freed and not yet handed over.
    #[inline]
    pub(crate) fn has_freed(&self) -> bool {
        let freed = self.freed_ops.len() + self.freed_storages.len() + self.freed_tensors.len();
        freed > 0
    }

    /// Hands the freed ids over; from now on they may be used again.
    pub(crate) fn hand_over(&mut self, graph: &mut Graph, freed: &mut Freed) {
        freed.ops.clear();
        freed.storages.clear();
        std::mem::swap(&mut freed.ops, &mut self.freed_ops);
        std::mem::swap(&mut freed.storages, &mut self.freed_storages);
        graph.free_ops.extend_from_slice(&freed.ops);
        graph.free_storages.extend_from_slice(&freed.storages);
        graph.free_tensors.append(&mut self.freed_tensors);
    }
}
