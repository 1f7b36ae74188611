//! Plans of chains: known cases, every small case, random cases.

mod chains;
mod exhaustive;
mod known;
mod liveness;
mod random;
mod realistic;
