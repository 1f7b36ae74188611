//! Addresses of the blocks of a plan: offline dynamic storage allocation.

mod addresses;
mod blocks;
mod packing;
mod placed;

pub use addresses::Addresses;
pub(super) use blocks::{blocks, Blocks};
pub(super) use packing::{pack, Block, Effort, Ties};
pub use placed::place;
