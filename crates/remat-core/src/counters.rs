//! Counts of what the engine did.

use crate::ids::{Bytes, Cost};

/// Counters, all since the engine was made. Unperformed (aborted) steps are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Storages evicted to make room (eager evictions not included).
    pub evictions: u64,
    /// Ops replayed.
    pub replays: u64,
    /// Cost of those replays.
    pub replayed_cost: Cost,
    /// Cost of first computations.
    pub first_cost: Cost,
    /// Searches for what to evict: one for each storage evicted to make room, or one for each window.
    pub searches: u64,
    /// In arenas, blocks that were not to be had without evicting.
    pub shortages: u64,
    /// Bytes of these blocks.
    pub shortage_bytes: u64,
    /// In arenas, bytes evicted to make room.
    pub evicted_bytes: u64,
    /// Of these, bytes that the block for which room was made does not cover.
    pub unused_evicted_bytes: u64,
    /// In arenas, the sum over all shortages of the bytes that were free once the block was taken.
    pub free_after: u64,
    /// The most bytes that were free once such a block was taken.
    pub most_free_after: u64,
    /// In arenas, bytes of the blocks that were moved.
    pub moved_bytes: u64,
    /// Score evaluations of an exhaustive search, which the search no longer is.
    pub score_evaluations: u64,
    /// Storage metadata accesses of an exhaustive search, counted as DTR appendix D.3 does.
    pub metadata_accesses: u64,
}

/// How far the plan that was refused last had got in DTR's own order when it stopped; for comparison with simulators
/// that perform a plan while they look for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refused {
    /// The clock there.
    pub clock: u64,
    /// The counters there.
    pub counters: Counters,
    /// Highest memory of device 0 there.
    pub peak: Bytes,
}
