//! Joint graphs of a forward and a backward pass.

use crate::adjacency::Adjacency;
use crate::cut::graph::ban::Ban;
use std::collections::HashMap;

/// Properties of a node beside its neighbours; see [`crate::cut::Node`] for the fields.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Properties {
    pub(crate) bytes: u64,
    pub(crate) cost: u64,
    pub(crate) fusible: bool,
    pub(crate) compute_bound: bool,
    pub(crate) random: bool,
    pub(crate) reduction: bool,
    pub(crate) savable: bool,
    pub(crate) recomputable: bool,
    /// Its ban by the description's fusion rules; such a node counts as compute-bound, so that a budget lifts the ban
    /// for its time.
    pub(crate) fusion_ban: Option<Ban>,
    pub(crate) written: Option<bool>,
    pub(crate) heavy: bool,
    pub(crate) workspace: u64,
    /// It is among the inputs of the forward pass.
    pub(crate) input: bool,
    /// It is given to the backward pass.
    pub(crate) tangent: bool,
    pub(crate) forward_output: bool,
    pub(crate) backward_output: bool,
    /// The input whose memory it shares.
    pub(crate) view_of: Option<u32>,
    /// The op of several results of which it is one.
    pub(crate) part_of: Option<u32>,
    pub(crate) group: Option<u32>,
    /// An op makes it, even out of nothing.
    pub(crate) made: bool,
}

/// A joint graph that is sound: names are known, nothing is computed from itself, numbers add up. Nodes are numbered
/// in an order in which they can run: that of the description if it is one.
///
/// ```
/// use remat_plan::cut::{partition, JointGraph};
///
/// // f(x) = tanh(tanh(x)), figure 1 of the paper: the gradient of tanh is computed from its result.
/// let node = |name, inputs: &str| {
///     format!(r#"{{"name": "{name}", "bytes": 4, "fusible": true, "inputs": [{inputs}]}}"#)
/// };
/// let nodes = [
///     node("x", ""), node("a", r#""x""#), node("b", r#""a""#),
///     node("g", ""), node("h", r#""g", "b""#), node("dx", r#""h", "a""#),
/// ];
/// let graph: JointGraph = format!(
///     r#"{{"nodes": [{}], "inputs": ["x"], "tangents": ["g"],
///          "forward_outputs": ["b"], "backward_outputs": ["dx"]}}"#,
///     nodes.join(", ")
/// ).parse()?;
/// let cut = partition(&graph, &Default::default())?;
/// assert_eq!(cut.saved, ["x"]);
/// assert_eq!(cut.recomputed, ["a", "b"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct JointGraph {
    pub(crate) names: Vec<String>,
    pub(crate) nodes: Vec<Properties>,
    /// The inputs of each node, each once.
    pub(crate) inputs: Adjacency,
    /// The readers of each node.
    pub(crate) users: Adjacency,
    /// Values that each of several kernels may read in place of one.
    pub(crate) shared_reads: usize,
}

impl JointGraph {
    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// It has no nodes.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Name of a node, numbered from 0 on in an order in which they can run.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn name(&self, node: usize) -> &str {
        &self.names[node]
    }

    /// The results of an op of several results that have memory of their own.
    pub(crate) fn parts(&self, id: usize) -> impl Iterator<Item = usize> + '_ {
        let users = self.users.of(id).iter().map(|&user| user as usize);
        users.filter(move |&user| {
            let node = &self.nodes[user];
            node.part_of == Some(id as u32) && node.view_of.is_none()
        })
    }

    /// The nodes of these names, by number; the name that is unknown if there is one.
    pub(crate) fn find<'a>(&self, names: &'a [String]) -> Result<Vec<u32>, &'a String> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let known: HashMap<&str, u32> = (0..)
            .zip(&self.names)
            .map(|(id, name)| (name.as_str(), id))
            .collect();
        let find = |name: &'a String| known.get(name.as_str()).copied().ok_or(name);
        names.iter().map(find).collect()
    }

    /// The names of nodes.
    pub(crate) fn names_of(&self, nodes: &[u32]) -> Vec<String> {
        let name = |&node: &u32| self.names[node as usize].clone();
        nodes.iter().map(name).collect()
    }
}
