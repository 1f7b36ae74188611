//! What is not to be recomputed, and why (sections 3.1 and 3.4 of the paper).

use crate::cut::error::CutError;
use crate::cut::graph::joint_graph::JointGraph;
use std::fmt;

/// Why a node is not to be recomputed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ban {
    /// Its op is random: it would not come out the same.
    Random,
    /// Its op takes long.
    ComputeBound,
    /// It is a reduction to less than a quarter.
    Reduction,
    /// An op of the backward pass that it does not fuse with reads it, so it would be written and read anyway (lemma 3.1).
    Unfusible,
    /// The caller said so.
    Caller,
}

impl Ban {
    /// A word for it.
    pub fn name(self) -> &'static str {
        match self {
            Ban::Random => "random",
            Ban::ComputeBound => "compute-bound",
            Ban::Reduction => "reduction",
            Ban::Unfusible => "unfusible",
            Ban::Caller => "caller",
        }
    }
}

impl fmt::Display for Ban {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The ban of each node, `None` for those that may be recomputed. Inputs have none: there is no op that makes them.
pub(crate) fn bans(graph: &JointGraph, forward: &[bool]) -> Vec<Option<Ban>> {
    let ban = |id: usize| match forward[id] && !graph.nodes[id].input {
        true => ban(graph, forward, id),
        false => None,
    };
    (0..graph.len()).map(ban).collect()
}

fn ban(graph: &JointGraph, forward: &[bool], id: usize) -> Option<Ban> {
    let node = &graph.nodes[id];
    let fuses = |&user: &u32| node.fusible && graph.nodes[user as usize].fusible;
    let backward = |user: &&u32| !forward[**user as usize];
    let rules = [
        (Ban::Random, node.random),
        (Ban::Caller, !node.recomputable),
        (Ban::ComputeBound, node.compute_bound),
        (Ban::Reduction, node.reduction && reduces(graph, id)),
        (
            Ban::Unfusible,
            !graph.users.of(id).iter().filter(backward).all(fuses),
        ),
    ];
    rules
        .iter()
        .find(|(_, applies)| *applies)
        .map(|&(ban, _)| ban)
}

/// It is smaller than a quarter of what it reads.
fn reduces(graph: &JointGraph, id: usize) -> bool {
    let reads = graph.inputs.of(id).iter();
    let read: u64 = reads.map(|&read| graph.nodes[read as usize].bytes).sum();
    4 * u128::from(graph.nodes[id].bytes) < u128::from(read)
}

/// Bans beside those of the rules, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// Not to be recomputed either.
    pub ban: Vec<String>,
    /// May be recomputed whatever the rules say, unless they are random or the graph says that they are not to be.
    pub allow: Vec<String>,
    /// Which of several minimum cuts.
    pub nearest: Nearest,
}

/// Which of several minimum cuts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Nearest {
    /// That with the fewest nodes to recompute: nothing is saved that is larger than what is computed from it alone (section 3.4).
    #[default]
    Backward,
    /// That with the most, nearest the inputs: what capacities alone give where nothing is weighed by its place.
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
            let ban = &mut bans[id as usize];
            if let Some(reason @ (Ban::Random | Ban::Caller)) = *ban {
                return Err(CutError::NotLifted {
                    node: graph.names[id as usize].clone(),
                    reason: reason.name(),
                });
            }
            *ban = None;
        }
        for id in graph.find(&self.ban).map_err(unknown("ban"))? {
            let id = id as usize;
            if forward[id] && !graph.nodes[id].input {
                bans[id] = bans[id]
                    .filter(|&ban| ban == Ban::Random)
                    .or(Some(Ban::Caller));
            }
        }
        Ok(())
    }
}
