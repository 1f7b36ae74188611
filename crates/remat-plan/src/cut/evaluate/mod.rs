//! The cost, time and memory of a choice of what to save.

pub(crate) mod capacity;
pub(crate) mod choice;
pub(crate) mod kernels;
pub(crate) mod recompute;
pub(crate) mod timeline;
