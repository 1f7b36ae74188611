//! Which nodes can run in the forward pass, and what the backward pass needs of them.

use crate::cut::graph::joint_graph::JointGraph;

/// What a joint graph says before anything is chosen.
pub(crate) struct Phases {
    /// `V_f` of the paper: computable from the inputs of the forward pass alone.
    pub(crate) forward: Vec<bool>,
    /// Not in `V_f`, and an output of the backward pass is computed from it, or it is one.
    pub(crate) backward: Vec<bool>,
    /// In `V_f`, and the backward pass must have it: an op of `backward` reads it, or it is an output.
    pub(crate) needed: Vec<bool>,
}

impl Phases {
    /// Takes time `O(nodes + edges)`.
    pub(crate) fn of(graph: &JointGraph) -> Phases {
        let forward = forward(graph);
        let mut backward = vec![false; graph.len()];
        for id in (0..graph.len()).rev() {
            let mut users = graph.users.of(id).iter();
            let wanted = graph.nodes[id].backward_output || users.any(|&u| backward[u as usize]);
            backward[id] = wanted && !forward[id];
        }
        let needed = |id: usize| {
            let mut users = graph.users.of(id).iter();
            let output = graph.nodes[id].backward_output;
            forward[id] && (output || users.any(|&user| backward[user as usize]))
        };
        let needed = (0..graph.len()).map(needed).collect();
        Phases {
            forward,
            backward,
            needed,
        }
    }
}

/// Whether each node is computable from no tangent.
fn forward(graph: &JointGraph) -> Vec<bool> {
    let mut forward = vec![false; graph.len()];
    for id in 0..graph.len() {
        let mut reads = graph.inputs.of(id).iter();
        forward[id] = !graph.nodes[id].tangent && reads.all(|&read| forward[read as usize]);
    }
    forward
}

/// Whether the forward outputs are computed from each node; they themselves are among them.
pub(crate) fn forward_ancestors(graph: &JointGraph) -> Vec<bool> {
    let mut runs = vec![false; graph.len()];
    for id in (0..graph.len()).rev() {
        let mut users = graph.users.of(id).iter();
        runs[id] = graph.nodes[id].forward_output || users.any(|&user| runs[user as usize]);
    }
    runs
}
