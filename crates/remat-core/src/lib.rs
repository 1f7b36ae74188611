//! The rematerialization engine: an online state machine that decides what to evict and what to recompute so that a
//! run stays inside a byte budget (DTR, Kirisame et al., ICLR 2021).
//!
//! The engine is told what happens (an op is about to run, it took so long, a reference went) and answers with
//! [`Step`]s to perform. It does no I/O, keeps no clock and starts no thread; a front end owns time and memory.
//!
//! Start at [`Engine`]; its example is the whole protocol.

mod arena;
mod config;
mod dedup;
mod engine;
mod error;
mod eviction;
mod graph;
mod ids;
mod journal;
mod op;
pub mod pool;
mod replay;
mod room;
mod transaction;

pub use arena::{Observed, Placement};
pub use config::*;
pub use engine::*;
pub use error::*;
pub use eviction::policy::{names, CostTerm, Policy, Price, UnknownPolicy};
pub use graph::Heirs;
pub use ids::*;
pub use op::*;
