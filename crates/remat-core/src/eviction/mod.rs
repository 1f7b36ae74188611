//! Which storage goes first: policies, candidates, and the parts of their scores.

mod candidates;
mod components;
mod membership;
mod multi_source;
mod neighbourhood;
mod next_use;
mod numerator;
pub(crate) mod policy;
mod scores;
pub(crate) mod search;
mod victim;

pub(crate) use neighbourhood::Announced;
pub(crate) use scores::{Change, Eviction, Reference};
