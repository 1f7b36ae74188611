//! The search for the candidate with the smallest score, exact to the last rounding.
//!
//! Few candidates are scanned ([`scan`]). Among many, scores that time does not change are kept in a binary heap
//! ([`LazyHeap`](heap::LazyHeap)). Where scores fall with time, candidates sleep while they surely cannot be the best
//! ([`Horizons`](horizon::Horizons)). Both go by the order of the scan ([`Order`](order::Order)), and so they pick its
//! victim. Random scores are always scanned, for each search draws them afresh.

mod heap;
mod horizon;
mod list;
mod order;
mod quotient;
mod radix;
mod roster;
mod scan;
#[cfg(test)]
mod tests;

pub(crate) use list::{List, MANY};
pub(crate) use order::Candidate;
