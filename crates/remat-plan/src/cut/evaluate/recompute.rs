//! The recomputation that follows from the saved values.

/// The nodes that the backward pass reads and recomputes, in the order of the graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Recompute {
    /// Saved nodes that the backward pass reads.
    pub(crate) read: Vec<u32>,
    /// The nodes of `V_f` that it computes.
    pub(crate) recomputed: Vec<u32>,
}
