//! The rematerialization engine: an online state machine that decides what to evict and what to recompute so that a
//! run stays inside a byte budget (DTR, Kirisame et al., ICLR 2021).
//!
//! The engine is told what happens (an op is about to run, it took so long, a reference went) and answers with
//! [`Step`]s to perform. It does no I/O, keeps no clock and starts no thread; a front end owns time and memory.
//!
//! Start at [`Engine`]; its example is the whole protocol.

mod ahead;
mod arena;
mod banish;
mod candidates;
mod collect;
mod components;
mod config;
mod engine;
mod error;
mod fit;
mod graph;
mod heirs;
mod ids;
mod journal;
mod life;
mod names;
mod neighbourhood;
mod once;
mod op;
mod policy;
pub mod pool;
mod replay;
mod residency;
mod search;
mod sever;
mod state;
mod together;

pub use arena::{Observed, Placement};
pub use config::*;
pub use engine::*;
pub use error::*;
pub use heirs::Heirs;
pub use ids::*;
pub use op::*;
pub use policy::{names, CostTerm, Policy, Price, UnknownPolicy};
