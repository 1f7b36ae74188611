//! Steps that an engine recorded while a program ran, and plans as an engine follows them.

mod events;
mod guide;

pub use guide::Learned;
