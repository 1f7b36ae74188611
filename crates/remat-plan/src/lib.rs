//! Offline planners: they turn what is known of a training step before it runs into the best order of computing,
//! dropping and recomputing within a budget. Nothing is run here.
//!
//! [`chain`] plans networks that are chains of stages, optimally. [`cut`] chooses the values that a compiled step
//! saves between its forward and its backward pass. [`step`] chooses which ops of a recorded step run again, and when.

#![forbid(unsafe_code)]

mod adjacency;
pub mod chain;
pub mod cut;
mod flow;
pub mod step;

// Code that tests inside and outside of the crate share names the crate the same way.
#[cfg(test)]
extern crate self as remat_plan;
