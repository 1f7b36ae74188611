//! Making room.

pub(crate) mod placing;
mod shortage;
