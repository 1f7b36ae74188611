//! Errors in joint graphs, and reasons against a plan of one.

mod cut;
mod graph;
mod short;

pub use cut::CutError;
pub use graph::GraphError;
pub(crate) use short::Short;
