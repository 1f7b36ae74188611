//! The engine's state, and every change to it that a plan can take back.

mod banish;
pub(crate) mod collect;
mod lifecycle;
mod residency;
pub(crate) mod state;
