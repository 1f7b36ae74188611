//! `remat plan`.

pub(crate) mod chain;
mod chain_refusal;
mod curve;
pub(crate) mod cut;
pub(crate) mod step;
