//! The search for a schedule within a budget.

mod bound;
mod cut;
mod network;
pub(crate) mod planner;
mod prune;
pub(crate) mod rng;
pub(crate) mod rounds;
