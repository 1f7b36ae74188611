//! The session's knowledge of the program's memory: torch's storages, bytes, devices, chains of ops, and the trace.

pub mod accelerators;
pub mod buffers;
pub mod devices;
pub mod held_constants;
pub mod ledger;
pub mod lineage;
pub mod live;
pub mod outside;
pub mod owner;
pub mod slack;
pub mod storages;
pub mod trace;
mod untold;
pub mod unwatched;
pub mod weak_deaths;
