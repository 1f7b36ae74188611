//! Plans of steps checked by code of their own.

mod arena;
pub(crate) mod fault;
mod recording;
pub(crate) mod verifier;
mod walk;
