//! The commands, a file or folder each.

pub(crate) mod figures;
pub(crate) mod min_budget;
pub(crate) mod plan;
pub(crate) mod policies;
pub(crate) mod simulate;
pub(crate) mod trace;
pub(crate) mod verify;
