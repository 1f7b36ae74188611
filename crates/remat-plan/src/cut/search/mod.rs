//! The minimum cut, plans within a budget, and bounds on them.

pub(crate) mod bound;
pub(crate) mod budget;
pub(crate) mod frontier;
pub(crate) mod frontier_search;
pub(crate) mod groups;
pub(crate) mod lagrangian;
pub(crate) mod partition;
#[cfg(test)]
mod quality;
pub(crate) mod snapshot;
pub(crate) mod snapshot_cut;
