//! The cost of saving a node (algorithm 2 of the paper).

use crate::cut::graph::joint_graph::JointGraph;
use crate::flow::network::Capacity;

/// The capacity of a node: bytes read by the backward pass, and as many written by the forward pass if it would not
/// write them anyway. Infinite for a node that is not savable.
pub(crate) fn capacity(graph: &JointGraph, id: usize) -> Capacity {
    let node = &graph.nodes[id];
    match (node.savable, materialized(graph, id)) {
        (false, _) => Capacity::Infinite,
        (true, true) => Capacity::Finite(node.bytes),
        (true, false) => Capacity::Finite(2 * node.bytes),
    }
}

/// Whether the forward pass writes a node to memory even if it is not saved: the node is an input, an output, or not
/// in one kernel with all of its users.
fn materialized(graph: &JointGraph, id: usize) -> bool {
    let node = &graph.nodes[id];
    let fusible = |&user: &u32| graph.nodes[user as usize].fusible;
    node.input || node.forward_output || !node.fusible || !graph.users.of(id).iter().all(fusible)
}
