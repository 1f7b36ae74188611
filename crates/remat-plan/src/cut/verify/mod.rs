//! Plans checked by code of their own.

pub(crate) mod claim;
