//! What follows from what is saved.

/// What the backward pass does with what it is handed. Nodes are in the order of the graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Recompute {
    /// What is saved and the backward pass reads.
    pub(super) read: Vec<u32>,
    /// The nodes of `V_f` that it computes.
    pub(super) recomputed: Vec<u32>,
}
