//! The engine's state, and the one place that changes it: every change that a plan can take back is journaled here.

mod accounts;
mod banish;
mod blocks;
mod collect;
mod lifecycle;
mod observe;
mod overwrite;
mod residency;
mod state;
mod undo;

pub(crate) use accounts::Limits;
pub(crate) use state::{Call, State, Stop};
