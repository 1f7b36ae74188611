//! Storages, tensors, ops, and who reads what (DTR appendix C.1).

mod banish_plan;
mod detach;
pub(crate) mod links;

pub use banish_plan::Heirs;
pub(crate) use links::{Graph, Life, Made, Phase, Storage, NONE};
