//! `remat trace`.

pub(crate) mod check;
pub(crate) mod convert;
pub(crate) mod info;
