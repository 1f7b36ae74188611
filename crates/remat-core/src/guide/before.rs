//! The actions of a guide before an op, by the engine's ids.

use crate::ids::{OpId, StorageId};

/// An action of a plan, by the engine's ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planned {
    /// A storage is dropped.
    Drop(StorageId),
    /// An op runs again; what it writes into it writes into copies of.
    Run(OpId),
    /// An op runs again, and takes the blocks of the values that it writes into.
    RunInPlace(OpId),
}

/// All that a guide has happen before an op, and where blocks are to lie.
#[derive(Default)]
pub(crate) struct Before {
    /// First, storages that nobody refers to, and that no plan knows of.
    pub(crate) drops: Vec<StorageId>,
    /// Then, storages that are to lie elsewhere.
    pub(crate) moves: Vec<(StorageId, u64)>,
    /// The actions, each with the end of its addresses among `addresses`.
    pub(crate) actions: Vec<(Planned, usize)>,
    /// Addresses of the actions' blocks, and from the end of the last action's on those of the op.
    pub(crate) addresses: Vec<u64>,
    pub(crate) twins: Vec<(u64, u64)>,
}

impl Before {
    pub(super) fn clear(&mut self) {
        self.drops.clear();
        self.moves.clear();
        self.actions.clear();
        self.addresses.clear();
    }

    /// Whether a guide says nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.drops.is_empty()
            && self.moves.is_empty()
            && self.actions.is_empty()
            && self.addresses.is_empty()
    }

    /// The addresses of the op's own blocks.
    pub(crate) fn own(&self) -> &[u64] {
        let from = self.actions.last().map_or(0, |&(_, end)| end);
        &self.addresses[from..]
    }
}
