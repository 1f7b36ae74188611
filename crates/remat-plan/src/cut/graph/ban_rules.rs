//! The rules that ban nodes from being recomputed (sections 3.1 and 3.4 of the paper), and what the caller adds or
//! lifts.

use crate::cut::error::CutError;
use crate::cut::graph::ban::Ban;
use crate::cut::graph::joint_graph::{JointGraph, Properties};

/// The ban of each node, `None` for those that may be recomputed. Inputs have none: there is no op that makes them.
pub(crate) fn bans(graph: &JointGraph, forward: &[bool]) -> Vec<Option<Ban>> {
    let banned = |id: usize| {
        let made = forward[id] && !graph.nodes[id].input;
        made.then(|| ban(graph, forward, id)).flatten()
    };
    (0..graph.len()).map(banned).collect()
}

fn ban(graph: &JointGraph, forward: &[bool], id: usize) -> Option<Ban> {
    let node = &graph.nodes[id];
    let fuses = |&user: &u32| node.fusible && graph.nodes[user as usize].fusible;
    let backward = |user: &&u32| !forward[**user as usize];
    if node.fusion_ban.is_some() {
        node.fusion_ban
    } else if let Some(lasting) = lasting_ban(node) {
        Some(lasting)
    } else if node.compute_bound {
        Some(Ban::ComputeBound)
    } else if node.reduction && reduces(graph, id) {
        Some(Ban::Reduction)
    } else if !graph.users.of(id).iter().filter(backward).all(fuses) {
        Some(Ban::Unfusible)
    } else {
        None
    }
}

/// The ban that neither a caller nor a budget lifts, if the node has one.
pub(crate) fn lasting_ban(node: &Properties) -> Option<Ban> {
    if node.random {
        Some(Ban::Random)
    } else if !node.recomputable {
        Some(Ban::Caller)
    } else {
        None
    }
}

fn reduces(graph: &JointGraph, id: usize) -> bool {
    let reads = graph.inputs.of(id).iter();
    let read = reads.map(|&read| graph.nodes[read as usize].bytes).sum();
    below_a_quarter(graph.nodes[id].bytes, read)
}

/// The result of an op is smaller than a quarter of its operands.
pub(crate) fn below_a_quarter(made: u64, read: u64) -> bool {
    4 * u128::from(made) < u128::from(read)
}

/// Bans that the caller adds or lifts, by name of node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// Nodes that must not be recomputed either.
    pub ban: Vec<String>,
    /// Nodes that may be recomputed whatever the rules say, unless they are random or the graph forbids it.
    pub allow: Vec<String>,
    /// The choice among several minimum cuts.
    pub nearest: Nearest,
}

/// The choice among several minimum cuts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Nearest {
    /// The cut with the fewest nodes to recompute: no value is saved that is larger than a value computed from it
    /// alone (section 3.4).
    #[default]
    Backward,
    /// The cut with the most nodes to recompute, nearest the inputs: the result of capacities that no place weighs.
    Forward,
}

impl Wishes {
    /// Adds and lifts bans.
    pub(crate) fn apply(
        &self,
        graph: &JointGraph,
        forward: &[bool],
        bans: &mut [Option<Ban>],
    ) -> Result<(), CutError> {
        let unknown = |list| {
            move |name: &String| CutError::Unknown {
                list,
                name: name.clone(),
            }
        };
        for id in graph.find(&self.allow).map_err(unknown("allow"))? {
            let id = id as usize;
            if let (Some(_), Some(lasting)) = (bans[id], lasting_ban(&graph.nodes[id])) {
                return Err(CutError::NotLifted {
                    node: graph.names[id].clone(),
                    reason: lasting.name(),
                });
            }
            bans[id] = None;
        }
        for id in graph.find(&self.ban).map_err(unknown("ban"))? {
            let (id, node) = (id as usize, &graph.nodes[id as usize]);
            if forward[id] && !node.input && !node.random {
                bans[id] = Some(Ban::Caller);
            }
        }
        Ok(())
    }
}
