//! Offline planners: what is known of a training step before it runs is turned into the best order of computing, dropping and
//! recomputing within a budget. Nothing is run here.
//!
//! [`chain`] plans networks that are chains of stages, optimally. [`cut`] says what a compiled step saves between its forward and its
//! backward pass.

pub mod chain;
pub mod cut;

// What tests inside and outside of the crate share names it the same way.
#[cfg(test)]
extern crate self as remat_plan;
