//! Storages, tensors, ops, and who reads what (DTR appendix C.1).

mod banish_plan;
mod collection;
mod detach;
mod links;
mod neighbours;
mod records;

pub use banish_plan::BanishPlan;
pub(crate) use collection::{Collection, Freed};
pub(crate) use links::Graph;
pub(crate) use records::{Life, Made, NONE, NOWHERE, Phase, Precision, Storage, Way};
