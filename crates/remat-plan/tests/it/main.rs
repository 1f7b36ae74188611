//! Plans of chains: known cases, every small case, random cases.

mod chains;
mod exhaustive;
mod known;
mod random;
mod realistic;
