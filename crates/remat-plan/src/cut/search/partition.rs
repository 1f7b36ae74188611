//! What to save between the forward and the backward pass: the minimum cut of algorithm 1 of the paper.

use crate::cut::error::CutError;
use crate::cut::evaluate::choice::{Choice, Question};
use crate::cut::flow::min_cut::{min_cut, min_cut_nearest_source, NoMinCut};
use crate::cut::flow::network::{Capacity, Network};
use crate::cut::graph::ban::Ban;
use crate::cut::graph::ban_rules::{Nearest, Wishes};
use crate::cut::graph::joint_graph::JointGraph;
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
    /// Of these, the names of what the rules ban from it: lifted by the caller, or to fit in a budget.
    pub lifted: Vec<String>,
    /// Sum of the capacities cut, in bytes read and written.
    pub cost: u64,
    /// Bytes of all that is saved.
    pub saved_bytes: u64,
    /// The most bytes that the step takes at once, counted as in `timeline.rs`.
    pub peak_bytes: u64,
    /// Nanoseconds of ops that run a second time beside the kernels of the backward pass.
    pub recompute_ns: u64,
    /// Names of what the backward pass runs, in order: each of its ops, and directly before it what is recomputed for it.
    pub backward: Vec<String>,
    /// Names of what the rules ban from being recomputed, each with the reason.
    #[serde(serialize_with = "as_map")]
    pub banned: Vec<(String, Ban)>,
    /// How long planning took.
    pub seconds: f64,
}

impl Cut {
    pub(crate) fn of(question: &Question<'_>, choice: &Choice, start: Instant) -> Cut {
        let graph = question.graph;
        let bytes = |&id: &u32| graph.nodes[id as usize].bytes;
        let against = |&id: &u32| question.rules[id as usize].is_some();
        let lifted: Vec<u32> = choice
            .run
            .recomputed
            .iter()
            .copied()
            .filter(against)
            .collect();
        let banned = question.bans.iter().zip(&graph.names);
        Cut {
            saved: graph.names_of(&choice.run.read),
            recomputed: graph.names_of(&choice.run.recomputed),
            lifted: graph.names_of(&lifted),
            cost: choice.cost,
            saved_bytes: choice.run.read.iter().map(bytes).sum(),
            peak_bytes: choice.peak,
            recompute_ns: choice.recompute_ns,
            backward: graph.names_of(&question.timeline(&choice.run).backward),
            banned: banned
                .filter_map(|(ban, name)| Some((name.clone(), (*ban)?)))
                .collect(),
            seconds: start.elapsed().as_secs_f64(),
        }
    }
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
    let question = Question::new(graph, wishes)?;
    let choice = cheapest(&question, wishes.nearest)?;
    Ok(Cut::of(&question, &choice, start))
}

/// The minimum cut, as a choice.
pub(crate) fn cheapest(question: &Question<'_>, nearest: Nearest) -> Result<Choice, CutError> {
    let weights = |id: usize| Weights {
        save: question.capacities[id],
        recompute: match question.graph.nodes[id].input || question.bans[id].is_some() {
            true => Capacity::Infinite,
            false => Capacity::Finite(0),
        },
    };
    let split = Split::new(question, weights);
    let (saved, cost) = split.saved(nearest)?;
    match question.choice(saved) {
        Some(choice) if choice.cost == cost => Ok(choice),
        _ => Err(CutError::Uncertified("the cut is not what it costs".into())),
    }
}

/// What a node costs either way.
pub(crate) struct Weights {
    /// The edge from its in-vertex to its out-vertex.
    pub(crate) save: Capacity,
    /// The edge from the source to its in-vertex: infinite in the paper where recomputing is banned.
    pub(crate) recompute: Capacity,
}

/// The auxiliary graph `G'` of algorithm 1: every node of `V_f` is an edge, from its in-vertex to its out-vertex.
pub(crate) struct Split<'a> {
    question: &'a Question<'a>,
    network: Network,
    /// The nodes of `V_f`; the k-th has vertices `2 + 2k` and `3 + 2k`.
    nodes: Vec<u32>,
}

impl<'a> Split<'a> {
    pub(crate) fn new(question: &'a Question<'a>, weights: impl Fn(usize) -> Weights) -> Split<'a> {
        let (graph, phases) = (question.graph, &question.phases);
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
            let weights = weights(id);
            if weights.recompute != Capacity::Finite(0) {
                network.edge(Network::SOURCE, into, weights.recompute);
            }
            network.edge(into, out, weights.save);
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
            question,
            network,
            nodes,
        }
    }

    /// The cut set nodes, and what the cut costs, edges from the source included.
    pub(crate) fn saved(&self, nearest: Nearest) -> Result<(Vec<bool>, u64), CutError> {
        let cut = match nearest {
            Nearest::Backward => min_cut(&self.network),
            Nearest::Forward => min_cut_nearest_source(&self.network),
        };
        let cut = cut.map_err(|error| self.refusal(error))?;
        let mut saved = vec![false; self.question.graph.len()];
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
        let mut users = self.question.graph.users.of(last as usize).iter();
        let needed_by = *users.find(backward).unwrap_or(&last);
        CutError::NoCut {
            banned: self.question.graph.names[first].clone(),
            reason: self.question.bans[first].map_or("input", Ban::name),
            needed_by: self.question.graph.names[needed_by as usize].clone(),
            path: self.question.graph.names_of(&path),
        }
    }
}
