//! The dynamic programs, apart from how memory is counted.

pub(crate) mod floating;
pub(crate) mod persistent;
pub(crate) mod program;
pub(crate) mod recurrence;
