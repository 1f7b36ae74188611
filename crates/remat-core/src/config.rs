//! Choices that are made once, with the engine.

use crate::eviction::policy::Policy;
use crate::ids::{Bytes, Cost};
use crate::pool::PoolError;
use std::num::NonZeroU32;

/// The choices that an [`Engine`](crate::Engine) is made with.
#[derive(Clone, Debug)]
pub struct Config {
    /// A budget for each device, `None` for no limit. Pools beyond the vector's end have no limit.
    pub budgets: Vec<Option<Bytes>>,
    /// Which storage goes first.
    pub policy: Policy,
    /// The fate of a storage whose last reference is dropped.
    pub dealloc: Dealloc,
    /// How long the engine remembers ops.
    pub lineage: Lineage,
    /// How replays are ordered.
    pub order: ReplayOrder,
    /// When to give a plan up.
    pub thrash: ThrashLimit,
    /// Seed of the `random` policy.
    pub seed: u64,
    /// How the bytes of a device with a budget are managed.
    pub memory: Memory,
    /// Nanoseconds since some moment, if the time of deciding is to be told
    /// ([`Engine::planning_time`](crate::Engine::planning_time), [`Engine::search_time`](crate::Engine::search_time));
    /// no decision depends on it. It is not read for ops that need neither a replay nor an eviction.
    pub stopwatch: Option<fn() -> u64>,
}

/// How the bytes of a device with a budget are managed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Memory {
    /// A count: free bytes are alike wherever they lie, as DTR assumes.
    #[default]
    Fungible,
    /// One arena of exactly the budget: a storage is a block with an address, and room is free bytes side by side (Coop
    /// section 3.1).
    Arena(Arena),
}

/// How storages are placed in an arena.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arena {
    /// Addresses and sizes are multiples of this.
    pub alignment: Alignment,
    /// Which blocks are placed from which side.
    pub partition: Partition,
    /// Smaller storages lie elsewhere: the allocator of a front end may leave small blocks to another. 0: all storages
    /// are placed.
    pub smallest: Bytes,
    /// Whether blocks may be moved.
    pub moves: Moves,
}

/// Whether a block that is in the way is copied elsewhere ([`Step::Move`](crate::Step::Move)) where that costs less
/// than evicting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Moves {
    /// Blocks stay where they were placed, as in the Coop paper.
    #[default]
    Never,
    /// Copies take their time.
    Copied {
        /// How fast.
        bytes_per_microsecond: NonZeroU32,
    },
}

/// The rule that keeps cheap blocks apart from expensive ones (cheap tensor partitioning, Coop section 3.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Partition {
    /// No partition: all blocks are placed from the low end, as allocators do.
    #[default]
    None,
    /// Blocks that are expensive for their size from the low end, as constants are, and cheap ones from the high end,
    /// as in the paper.
    ByCost,
    /// Blocks smaller than a 64th of the arena from the low end, as constants are, and larger ones from the high end:
    /// small storages that are pinned or read do not split the room of large ones.
    BySize,
}

/// A power of two, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alignment(u64);

impl Alignment {
    /// # Errors
    /// [`PoolError::Alignment`] for a number that is no power of two.
    ///
    /// ```
    /// use remat_core::Alignment;
    ///
    /// assert_eq!(Alignment::new(512).map(Alignment::bytes), Ok(512));
    /// assert!(Alignment::new(48).is_err());
    /// ```
    pub fn new(bytes: u64) -> Result<Alignment, PoolError> {
        if bytes.is_power_of_two() {
            Ok(Alignment(bytes))
        } else {
            Err(PoolError::Alignment { alignment: bytes })
        }
    }

    /// The power of two.
    pub fn bytes(self) -> u64 {
        self.0
    }
}

impl Default for Alignment {
    /// 64 bytes, as torch aligns tensors on a CPU.
    fn default() -> Self {
        Alignment(64)
    }
}

impl Default for Config {
    fn default() -> Self {
        Config {
            budgets: Vec::new(),
            policy: Policy::default(),
            dealloc: Dealloc::Eager,
            lineage: Lineage::Collect,
            order: ReplayOrder::Fit,
            thrash: ThrashLimit::Never,
            seed: 0,
            memory: Memory::Fungible,
            stopwatch: None,
        }
    }
}

/// Deallocation policy (DTR appendix C.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dealloc {
    /// Evict a storage as soon as its last reference goes.
    #[default]
    Eager,
    /// Free it for good once it has no evicted dependents; its dependents are then pinned.
    Banish,
    /// Take no notice of releases.
    Ignore,
}

/// How long ops are remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lineage {
    /// For ever, as the authors' simulator does: released storages stay in evicted neighbourhoods.
    Keep,
    /// Until nothing referenced can need them. Ids are reused.
    Collect,
}

/// In which order the missing ancestors of a tensor are recomputed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayOrder {
    /// DTR's own order and no other: input order, resident inputs locked all the while.
    Dtr,
    /// DTR's own order, and when that does not fit, orders that hold less.
    Fit,
}

/// When replaying counts as thrashing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ThrashLimit {
    /// Never.
    Never,
    /// When the cost replayed so far exceeds this.
    Total(Cost),
    /// When the cost replayed so far exceeds this many times the cost of all first computations so far
    /// (checked once that is a second or more).
    Ratio(f64),
}
