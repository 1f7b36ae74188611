//! Plans as they are written down.

pub(crate) mod actions;
pub(crate) mod step_plan;
