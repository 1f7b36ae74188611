//! Blocks with lifetimes, and their ties.

/// A block that is in use from one step of a plan up to another, which is not part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) bytes: u64,
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl Block {
    /// The steps for which it is in use.
    pub(super) fn long(&self) -> u32 {
        self.end - self.start
    }
}

/// The ties of blocks to one another, and to an arena that is in use.
#[derive(Clone, Debug)]
pub(crate) struct Ties {
    /// The address of each block that stays where it is.
    pub(crate) fixed: Vec<Option<u64>>,
    /// Of each block another that lies at the same address at other times; itself if there is none.
    pub(crate) fellows: Vec<u32>,
}

impl Ties {
    /// None at all.
    pub(crate) fn none(blocks: &[Block]) -> Ties {
        Ties {
            fixed: vec![None; blocks.len()],
            fellows: (0..blocks.len() as u32).collect(),
        }
    }
}
