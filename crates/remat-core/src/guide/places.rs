//! Where the blocks of a planned step lie in an arena.

use crate::ids::StorageId;

/// A storage that was there when a step began, by what other steps of the same ops have in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// The step before made it.
    Made {
        /// The op, by its place in that step.
        op: u32,
        /// The output, by its place among those of the op.
        output: u32,
    },
    /// It is older, and always the same.
    Storage(StorageId),
}

/// Where a planned step has its blocks, in the order in which they are taken: of each op its results that take a block,
/// in their order, and then its workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// The blocks of each first run.
    pub(super) runs: Lists,
    /// The blocks of each action of the guide; none for what is dropped.
    pub(super) actions: Lists,
    there: Vec<(Origin, u64)>,
    /// Addresses of which a block may lie at the second too.
    twins: Vec<(u64, u64)>,
    bytes: u64,
}

impl Places {
    /// The blocks of a step's first runs and of a guide's actions, each in order, and where what is there when a step
    /// begins is to lie. A block planned at the first address of a twin lies at the second where the first is taken.
    /// All of them end before `bytes`.
    pub fn new(
        runs: &[Vec<u64>],
        actions: &[Vec<u64>],
        there: Vec<(Origin, u64)>,
        twins: Vec<(u64, u64)>,
        bytes: u64,
    ) -> Places {
        Places {
            runs: Lists::of(runs),
            actions: Lists::of(actions),
            there,
            twins,
            bytes,
        }
    }

    /// The addresses of what is there when a step begins.
    pub fn there(&self) -> &[(Origin, u64)] {
        &self.there
    }

    /// The twins.
    pub fn twins(&self) -> &[(u64, u64)] {
        &self.twins
    }

    /// The bytes of an arena that holds all of the blocks.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether there are as many lists as a step has ops, and a guide actions.
    pub(super) fn fit(&self, ops: usize, actions: usize) -> bool {
        (self.runs.len(), self.actions.len()) == (ops, actions)
    }
}

/// Lists of addresses, one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Lists {
    starts: Vec<u32>,
    all: Vec<u64>,
}

impl Lists {
    fn of(lists: &[Vec<u64>]) -> Lists {
        let mut flat = Lists {
            starts: vec![0],
            all: Vec::new(),
        };
        for list in lists {
            flat.all.extend_from_slice(list);
            flat.starts.push(flat.all.len() as u32);
        }
        flat
    }

    fn len(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    pub(super) fn at(&self, index: usize) -> &[u64] {
        &self.all[self.starts[index] as usize..self.starts[index + 1] as usize]
    }
}
