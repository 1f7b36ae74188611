//! The search for the candidate with the smallest score, exact to the last rounding.
//!
//! Few candidates are scanned ([`scan`]). Among many, scores that time does not change are kept in a binary heap
//! ([`LazyHeap`](heap::LazyHeap)). Scores that fall with time are kept in a kinetic tournament
//! ([`Tournament`](tournament::Tournament)). Both go by the order of the scan ([`Order`](order::Order)), and so they pick
//! its victim. Random scores are always scanned, for each search draws them afresh.

mod heap;
mod line;
mod list;
mod order;
mod quotient;
mod scan;
#[cfg(test)]
mod tests;
mod tournament;

pub(crate) use list::{List, MANY};
pub(crate) use order::Candidate;
