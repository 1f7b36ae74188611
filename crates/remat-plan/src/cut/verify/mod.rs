//! Plans checked by code of their own.

pub(crate) mod check;
pub(crate) mod claim;
pub(crate) mod replay;
pub(crate) mod unwritten;
pub(crate) mod verifier;
