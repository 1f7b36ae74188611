//! `remat verify`.

pub(crate) mod chain;
pub(crate) mod cut;
pub(crate) mod step;
