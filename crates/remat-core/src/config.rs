//! What is chosen once, when an engine is made.

use crate::{Bytes, Cost, Policy};

/// The choices that an [`Engine`](crate::Engine) is made with.
#[derive(Clone, Debug)]
pub struct Config {
    /// A budget for each pool, `None` for no limit. Pools beyond the vector's end have no limit.
    pub budgets: Vec<Option<Bytes>>,
    /// Which storage goes first.
    pub policy: Policy,
    /// What happens when the last reference to a storage goes.
    pub dealloc: Dealloc,
    /// How long the engine remembers ops.
    pub lineage: Lineage,
    /// How replays are ordered.
    pub order: ReplayOrder,
    /// When to give up.
    pub thrash: ThrashLimit,
    /// Seed of the `random` policy.
    pub seed: u64,
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
