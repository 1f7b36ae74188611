//! Eviction policies: small rules that score a storage from its metadata; the smallest score goes first.

mod coop;
mod dte;
mod dtr;
mod e_star;
mod lru;
mod msps;
mod random;
mod size;
mod table;

pub(crate) use random::{mix, Draws};
pub use table::{names, CostTerm, Policy, Price, UnknownPolicy};
pub(crate) use table::{Form, Numerator, Rule};
