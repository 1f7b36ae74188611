//! Networks, their maximum flow and minimum cut.

pub(crate) mod min_cut;
pub(crate) mod network;
pub(crate) mod push_relabel;
