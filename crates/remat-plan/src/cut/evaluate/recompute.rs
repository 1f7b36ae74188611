//! What follows from what is saved.

/// What the backward pass does with what it is handed. Nodes are in the order of the graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Recompute {
    /// What is saved and the backward pass reads.
    pub(crate) read: Vec<u32>,
    /// The nodes of `V_f` that it computes.
    pub(crate) recomputed: Vec<u32>,
}
