//! The online state machine's face: what a front end may tell it and ask of it.

mod events;

pub(crate) use events::check_size;
pub use events::{Collected, Counters, Engine, Refused};
