//! Why a pool refuses. It is then as it was before.

use std::fmt;

/// A refusal; the pool is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolError {
    /// The alignment is no power of two.
    Alignment {
        /// As asked for, in bytes.
        alignment: u64,
    },
    /// The capacity does not hold one unit of alignment, or is beyond 2^63 - 1.
    Capacity {
        /// As asked for, in bytes.
        capacity: u64,
        /// In bytes.
        alignment: u64,
    },
    /// The address lies beyond the arena's end.
    Outside {
        /// As asked for.
        address: u64,
        /// Bytes of the arena.
        capacity: u64,
    },
    /// The address is no multiple of the alignment.
    Misaligned {
        /// As asked for.
        address: u64,
        /// In bytes.
        alignment: u64,
    },
    /// The address lies in free memory: freed before, or never taken.
    Free {
        /// As asked for.
        address: u64,
    },
    /// The address lies in a block that begins elsewhere.
    Inside {
        /// As asked for.
        address: u64,
        /// Where the block begins.
        block: u64,
    },
    /// Not all of these bytes are free.
    Taken {
        /// As asked for.
        address: u64,
        /// As asked for.
        bytes: u64,
    },
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            PoolError::Alignment { alignment } => {
                write!(
                    f,
                    "alignment {alignment} is no power of two; take one, for example 64 or 512"
                )
            }
            PoolError::Capacity {
                capacity,
                alignment,
            } if capacity < alignment => write!(
                f,
                "an arena of {capacity} bytes does not hold one block of its alignment, {alignment} bytes; enlarge it"
            ),
            PoolError::Capacity { capacity, .. } => {
                write!(
                    f,
                    "an arena of {capacity} bytes is beyond 2^63 - 1; make it smaller"
                )
            }
            PoolError::Outside { address, capacity } => write!(
                f,
                "address {address:#x} is not of this arena, which ends at {capacity:#x}; free it where it was allocated"
            ),
            PoolError::Misaligned { address, alignment } => {
                write!(
                    f,
                    "address {address:#x} is no multiple of the alignment, {alignment}"
                )
            }
            PoolError::Free { address } => write!(
                f,
                "address {address:#x} lies in free memory: it was freed before or never allocated; free each block once"
            ),
            PoolError::Inside { address, block } => write!(
                f,
                "address {address:#x} lies inside the block at {block:#x}; free a block by its first address"
            ),
            PoolError::Taken { address, bytes } => write!(
                f,
                "{bytes} bytes at {address:#x} are not all free; free what lies there first"
            ),
        }
    }
}

impl std::error::Error for PoolError {}
