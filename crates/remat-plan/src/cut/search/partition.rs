//! The values to save between the forward and the backward pass: the minimum cut of algorithm 1 of the paper.

use crate::cut::error::CutError;
use crate::cut::evaluate::choice::{Choice, Problem};
use crate::cut::graph::ban::Ban;
use crate::cut::graph::ban_rules::{Nearest, Wishes};
use crate::cut::graph::joint_graph::JointGraph;
use crate::cut::search::auxiliary_graph::{AuxiliaryGraph, Weights};
use crate::flow::network::Capacity;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use std::time::Instant;

/// The values that the forward pass saves and the backward pass recomputes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cut {
    /// Names of the values that the backward pass is handed, inputs of the forward pass among them.
    pub saved: Vec<String>,
    /// Names of the nodes that the backward pass computes although the forward pass could.
    pub recomputed: Vec<String>,
    /// Names of the recomputed nodes that the rules ban from it: the bans were lifted by the caller, or to fit in a
    /// budget.
    pub lifted: Vec<String>,
    /// Sum of the capacities that are cut, in bytes read and written.
    pub cost: u64,
    /// Bytes of all saved values.
    pub saved_bytes: u64,
    /// The most bytes that the step takes at once, counted as `evaluate/timeline.rs` says.
    pub peak_bytes: u64,
    /// Nanoseconds of ops that run a second time beside the kernels of the backward pass.
    pub recompute_ns: u64,
    /// Names of the nodes that the backward pass runs, in order: each of its ops, and directly before it the nodes
    /// recomputed for it.
    pub backward: Vec<String>,
    /// Names of the nodes that the rules ban from being recomputed, each with the reason.
    #[serde(serialize_with = "as_map")]
    pub banned: Vec<(String, Ban)>,
    /// Seconds that planning took.
    pub seconds: f64,
}

impl Cut {
    pub(crate) fn of(problem: &Problem<'_>, choice: &Choice, start: Instant) -> Cut {
        let graph = problem.graph;
        let bytes = |&id: &u32| graph.nodes[id as usize].bytes;
        let against = |&id: &u32| problem.rules[id as usize].is_some();
        let lifted: Vec<u32> = choice
            .run
            .recomputed
            .iter()
            .copied()
            .filter(against)
            .collect();
        let banned = problem.bans.iter().zip(&graph.names);
        Cut {
            saved: graph.names_of(&choice.run.read),
            recomputed: graph.names_of(&choice.run.recomputed),
            lifted: graph.names_of(&lifted),
            cost: choice.cost,
            saved_bytes: choice.run.read.iter().map(bytes).sum(),
            peak_bytes: choice.peak,
            recompute_ns: choice.recompute_ns,
            backward: graph.names_of(&problem.timeline(&choice.run).backward),
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

/// The choice with which the fewest bytes are read and written (theorem 3.6); of several such choices, the one that
/// recomputes least.
///
/// Takes as long as [`min_cut`](crate::cut::min_cut) with two vertices a node.
pub fn partition(graph: &JointGraph, wishes: &Wishes) -> Result<Cut, CutError> {
    let start = Instant::now();
    let problem = Problem::new(graph, wishes)?;
    let choice = cheapest(&problem, wishes.nearest)?;
    Ok(Cut::of(&problem, &choice, start))
}

/// The minimum cut, as a choice.
pub(crate) fn cheapest(problem: &Problem<'_>, nearest: Nearest) -> Result<Choice, CutError> {
    let weights = |id: usize| Weights {
        save: problem.capacities[id],
        recompute: if problem.graph.nodes[id].input || problem.bans[id].is_some() {
            Capacity::Infinite
        } else {
            Capacity::Finite(0)
        },
    };
    let split = AuxiliaryGraph::new(problem, weights);
    let (saved, cost) = split.saved(nearest)?;
    match problem.choice(saved) {
        Some(choice) if choice.cost == cost => Ok(choice),
        _ => Err(CutError::Uncertified("the cut is not what it costs".into())),
    }
}
