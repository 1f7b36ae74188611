//! Eviction policies: small rules that score a storage from its metadata; the smallest score goes first.
//!
//! A policy is one file that gives a [`Rule`], and one line in the [table](table). The rest of the engine goes by what
//! the rule says, and knows no policy by name.

mod coop;
mod dte;
mod dtr;
mod e_star;
mod formula;
mod lru;
mod msps;
mod random;
mod rule;
mod size;
mod table;

pub(crate) use rule::{Evicted, Form, Gaps, Numerator, Price, Reach, Rule, Summed};
pub use table::{Policy, UnknownPolicy, names};
