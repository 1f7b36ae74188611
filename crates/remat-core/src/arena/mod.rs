//! Arenas: blocks with addresses, and searches over them (Coop, section 3).

pub(crate) mod blocks;
pub(crate) mod compaction;
pub(crate) mod observe;
mod partition;
pub(crate) mod window;

pub use observe::{Observed, Placement};
