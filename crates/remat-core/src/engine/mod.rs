//! The online state machine's face: the calls that a front end makes, and the questions it may ask.

mod arenas;
mod contract;
mod guided;
mod measure;
mod queries;
mod validity;

pub use contract::{Collected, Engine};
