//! Strategies without tables: periodic, Chen et al., binomial checkpointing.

pub(crate) mod candidates;
pub(crate) mod segments;
pub(crate) mod treeverse;
