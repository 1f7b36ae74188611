//! Addresses of the blocks of a plan: offline dynamic storage allocation.

mod addresses;
mod block;
mod blocks;
mod ejection;
mod occupancy;
mod packing;
mod placed;
mod radix_sort;

pub use addresses::Addresses;
pub(super) use block::{Block, Ties};
pub(super) use blocks::{Blocks, blocks};
pub(super) use packing::{Effort, pack};
pub use placed::place;
