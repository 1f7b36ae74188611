//! The recorded step that is planned.

pub(crate) mod error;
pub(crate) mod step;
pub(crate) mod writer;
