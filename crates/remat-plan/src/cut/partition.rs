//! What to save between the forward and the backward pass: the minimum cut of algorithm 1 of the paper.

use super::ban::{bans, Ban, Nearest, Wishes};
use super::capacity::capacity;
use super::error::CutError;
use super::min_cut::{min_cut, min_cut_nearest_source, NoMinCut};
use super::model::JointGraph;
use super::network::{Capacity, Network};
use super::phases::Phases;
use super::recompute::Recompute;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use std::time::Instant;

/// What the forward pass saves and the backward pass recomputes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cut {
    /// Names of what the backward pass is handed, inputs of the forward pass among them.
    pub saved: Vec<String>,
    /// Names of what the backward pass computes although the forward pass could.
    pub recomputed: Vec<String>,
    /// Sum of the capacities cut, in bytes read and written.
    pub cost: u64,
    /// Bytes of all that is saved.
    pub saved_bytes: u64,
    /// Names of what was not to be recomputed, each with the reason.
    #[serde(serialize_with = "as_map")]
    pub banned: Vec<(String, Ban)>,
    /// How long finding it took.
    pub seconds: f64,
}

fn as_map<S: Serializer>(bans: &[(String, Ban)], serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(bans.len()))?;
    for (name, ban) in bans {
        map.serialize_entry(name, ban.name())?;
    }
    map.end()
}

/// What to save so that fewest bytes are read and written (theorem 3.6); of several such choices, that which recomputes least.
///
/// Takes as long as [`min_cut`] with two vertices a node.
pub fn partition(graph: &JointGraph, wishes: &Wishes) -> Result<Cut, CutError> {
    let start = Instant::now();
    let phases = Phases::of(graph);
    let mut bans = bans(graph, &phases.forward);
    wishes.apply(graph, &phases.forward, &mut bans)?;
    let split = Split::new(graph, &phases, &bans);
    let (saved, cost) = split.saved(wishes.nearest)?;
    let run = Recompute::of(graph, &phases, &saved);
    let bytes = |&id: &u32| graph.nodes[id as usize].bytes;
    let banned = bans.iter().zip(&graph.names);
    Ok(Cut {
        saved_bytes: run.read.iter().map(bytes).sum(),
        saved: graph.names_of(run.read),
        recomputed: graph.names_of(run.recomputed),
        cost,
        banned: banned
            .filter_map(|(ban, name)| Some((name.clone(), (*ban)?)))
            .collect(),
        seconds: start.elapsed().as_secs_f64(),
    })
}

/// The auxiliary graph `G'` of algorithm 1: every node of `V_f` is an edge, from its in-vertex to its out-vertex.
struct Split<'a> {
    graph: &'a JointGraph,
    bans: &'a [Option<Ban>],
    network: Network,
    /// The nodes of `V_f`; the k-th has vertices `2 + 2k` and `3 + 2k`.
    nodes: Vec<u32>,
}

impl<'a> Split<'a> {
    fn new(graph: &'a JointGraph, phases: &Phases, bans: &'a [Option<Ban>]) -> Split<'a> {
        let ids = 0..graph.len() as u32;
        let nodes: Vec<u32> = ids.filter(|&id| phases.forward[id as usize]).collect();
        let mut place = vec![0; graph.len()];
        for (k, &id) in (0..).zip(&nodes) {
            place[id as usize] = 2 + 2 * k;
        }
        let mut network = Network::new(2 * nodes.len() as u32);
        for &id in &nodes {
            let (id, into) = (id as usize, place[id as usize]);
            let out = into + 1;
            if graph.nodes[id].input || bans[id].is_some() {
                network.edge(Network::SOURCE, into, Capacity::Infinite);
            }
            network.edge(into, out, capacity(graph, id));
            for &user in graph.users.of(id) {
                if phases.forward[user as usize] {
                    network.edge(out, place[user as usize], Capacity::Infinite);
                }
            }
            if phases.needed[id] {
                network.edge(out, Network::SINK, Capacity::Infinite);
            }
        }
        Split {
            graph,
            bans,
            network,
            nodes,
        }
    }

    /// The cut set nodes, and what the cut costs.
    fn saved(&self, nearest: Nearest) -> Result<(Vec<bool>, u64), CutError> {
        let cut = match nearest {
            Nearest::Backward => min_cut(&self.network),
            Nearest::Forward => min_cut_nearest_source(&self.network),
        };
        let cut = cut.map_err(|error| self.refusal(error))?;
        let mut saved = vec![false; self.graph.len()];
        for (k, &id) in self.nodes.iter().enumerate() {
            let vertex = 2 + 2 * k;
            saved[id as usize] = !cut.sink_side[vertex] && cut.sink_side[vertex + 1];
        }
        Ok((saved, cut.cost))
    }

    fn refusal(&self, error: NoMinCut) -> CutError {
        match error {
            NoMinCut::Endless(edges) => self.endless(&edges),
            NoMinCut::TooLarge(sum) => CutError::Uncertified(format!("capacities add up to {sum}")),
            NoMinCut::Uncertified(reason) => CutError::Uncertified(reason),
        }
    }

    /// Names what infinite edges lead through.
    fn endless(&self, edges: &[usize]) -> CutError {
        let head = |&edge: &usize| self.network.edges[edge].head;
        let vertices = edges.iter().map(head);
        let entered = vertices.filter(|vertex| *vertex >= 2 && vertex % 2 == 0);
        let path: Vec<u32> = entered
            .map(|vertex| self.nodes[vertex as usize / 2 - 1])
            .collect();
        let (first, last) = (path[0] as usize, path[path.len() - 1]);
        let backward = |user: &&u32| !self.nodes.contains(user);
        let mut users = self.graph.users.of(last as usize).iter();
        let needed_by = *users.find(backward).unwrap_or(&last);
        CutError::NoCut {
            banned: self.graph.names[first].clone(),
            reason: self.bans[first].map_or("input", Ban::name),
            needed_by: self.graph.names[needed_by as usize].clone(),
            path: self.graph.names_of(path),
        }
    }
}
