//! Addresses of the blocks of a plan: offline dynamic storage allocation.

mod addresses;
mod blocks;
mod packing;
mod placed;

pub use addresses::Addresses;
pub use placed::place;
