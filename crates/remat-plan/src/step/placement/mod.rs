//! Addresses of the blocks of a plan: offline dynamic storage allocation.

mod addresses;
mod block;
mod blocks;
mod ejection;
mod occupancy;
mod packing;
mod placed;

pub use addresses::Addresses;
pub(super) use block::{Block, Ties};
pub(super) use blocks::{blocks, Blocks};
pub(super) use packing::{pack, Effort};
pub use placed::place;
