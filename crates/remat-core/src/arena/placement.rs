//! An arena whose blocks a real allocator hands out: where a plan wants them, and where they are.

use crate::ids::{Bytes, StorageId};

/// Where a plan puts something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The step that makes it, an index into [`Engine::steps`](crate::Engine::steps); their number for outputs of the
    /// op begun.
    pub step: usize,
    /// Which of the op's outputs.
    pub output: u32,
    /// From the arena's begin, in bytes.
    pub address: u64,
    /// Before rounding.
    pub bytes: Bytes,
}

/// A taken block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed {
    /// From the arena's begin, in bytes.
    pub address: u64,
    /// Rounded to the alignment.
    pub bytes: Bytes,
    /// Whose it is, if any storage's.
    pub owner: Option<StorageId>,
}
