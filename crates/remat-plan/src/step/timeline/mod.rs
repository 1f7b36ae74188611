//! Schedules: which ops run again when, and the memory that this takes.

mod lives;
pub(crate) mod moment;
mod profile;
mod runs;
pub(crate) mod schedule;
