//! Arenas: blocks with addresses, and searches over them (Coop, section 3).

mod blocks;
mod compaction;
mod demand;
mod partition;
mod placement;
mod window;

pub(crate) use blocks::Arenas;
pub(crate) use compaction::{Found, Movable};
pub(crate) use demand::{Demand, Request, Sides};
pub use placement::{Observed, Placement};
pub(crate) use window::{Sought, Window};
