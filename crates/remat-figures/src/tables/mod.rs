//! The figures' tables, a file each subject, and the runs and plans that they need.

pub mod chains;
pub mod linear;
pub mod opponent;
pub mod planned;
pub mod steps;
