//! Addresses as a plan's file holds them.

use serde::{Deserialize, Serialize};

/// Addresses of the blocks that a plan takes.
///
/// A run takes a block for each of its results that are no views, in their order, and then one for its workspace. What
/// it writes into the block of an old value takes none, and what has no bytes takes none. A result that is in memory
/// already has a second block while the op runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Addresses {
    /// The bytes of the arena: no block ends beyond them.
    pub bytes: u64,
    /// All addresses are multiples of this.
    pub alignment: u64,
    /// The address of each block, in the order in which the plan takes them, from 0.
    pub offsets: Vec<u64>,
}
