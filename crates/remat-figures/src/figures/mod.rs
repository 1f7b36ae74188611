//! The figures, a file each subject.

pub mod chains;
pub mod growth;
pub mod linear;
pub mod opponent;
pub mod steps;
