//! Which storage goes first: policies, candidates, and what their scores are made of.

pub(crate) mod candidates;
pub(crate) mod components;
pub(crate) mod multi_source;
pub(crate) mod neighbourhood;
pub(crate) mod policy;
pub(crate) mod search;
