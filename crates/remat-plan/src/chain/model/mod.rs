//! Chains, operations, sequences of them and their cost, strategies by name.

pub(crate) mod chain;
pub(crate) mod cost;
pub(crate) mod error;
pub(crate) mod sequence;
pub(crate) mod sizes;
pub(crate) mod strategy;
