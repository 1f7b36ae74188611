//! Bringing tensors back: orders of replay, and which of them is performed.

mod at_once;
mod belady;
mod dtr;
mod goal;
mod guided;
mod memory_need;
mod missing;
mod planner;
mod refusal;
mod rerun;
mod select;
mod sethi_ullman;

pub(crate) use goal::Goal;
pub(crate) use planner::Planner;
