//! Bringing tensors back: orders of replay, and which of them is performed.

pub(crate) mod belady;
pub(crate) mod dtr;
pub(crate) mod select;
pub(crate) mod sethi_ullman;
