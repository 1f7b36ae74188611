//! The rematerialization engine: an online state machine that decides what to evict and what to recompute so that a
//! run stays inside a byte budget (DTR, Kirisame et al., ICLR 2021).
//!
//! The engine is told what happens (an op is about to run, it took so long, a reference went) and answers with
//! [`Step`]s to perform. It does no I/O, keeps no clock and starts no thread; a front end owns time and memory.
//!
//! Start at [`Engine`]; its example is the whole protocol.

#![forbid(unsafe_code)]

mod arena;
mod config;
mod counters;
mod dedup;
mod engine;
mod error;
mod eviction;
mod graph;
mod guide;
mod ids;
mod journal;
mod op;
pub mod pool;
mod random;
mod replay;
mod room;
mod transaction;

pub use arena::{Observed, Placement};
pub use config::{
    Alignment, Arena, Config, Dealloc, Lineage, Memory, Moves, Partition, ReplayOrder, ThrashLimit,
};
pub use counters::{Counters, Refused};
pub use engine::{Collected, Engine};
pub use error::Error;
pub use eviction::policy::{Policy, UnknownPolicy, names};
pub use graph::BanishPlan;
pub use guide::{
    Guide, GuideAction, Guided, InvalidGuide, Lies, Origin, Places, Planned, Recorded, StepCosts,
    StepMark, Told, ToldOutput,
};
pub use ids::{Bytes, Cost, DeviceId, OpId, StorageId, TensorId};
pub use op::{Expected, Finished, Kind, Mutation, OpSpec, Output, Replay, Step};
pub use random::Draws;
