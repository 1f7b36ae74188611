//! Recomputation between two fusion groups (section 3.7 of the paper).

use crate::cut::error::CutError;
use crate::cut::evaluate::capacity::capacity;
use crate::cut::evaluate::choice::Problem;
use crate::cut::graph::ban_rules::Wishes;
use crate::cut::graph::joint_graph::{JointGraph, Properties};
use crate::cut::graph::validate::assembled;
use crate::cut::search::partition::{Cut, cheapest};
use crate::flow::network::Capacity;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// The values that one fusion group hands to another that touches it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Handover {
    /// The group that makes the values.
    pub producer: u32,
    /// The group that reads them.
    pub consumer: u32,
    /// Names of the values that the consumer reads: the producer's own, or values that the producer reads.
    pub read: Vec<String>,
    /// Names of the producer's nodes that the consumer computes again.
    pub recomputed: Vec<String>,
    /// Sum of the capacities that are cut, in bytes written and read between the two.
    pub cost: u64,
    /// The same sum where nothing is recomputed.
    pub plain_cost: u64,
}

/// The cheapest handover for any two fusion groups of which one reads values of the other.
///
/// A value that a node outside of both groups reads is written in any case, and so is an output. Takes one minimum
/// cut for each pair of groups that touch.
pub fn between_groups(graph: &JointGraph) -> Result<Vec<Handover>, CutError> {
    let mut members: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    let mut touching: BTreeSet<(u32, u32)> = BTreeSet::new();
    for (id, node) in (0..).zip(&graph.nodes) {
        let Some(group) = node.group else { continue };
        members.entry(group).or_default().push(id);
        for &read in graph.inputs.of(id as usize) {
            let from = graph.nodes[read as usize].group;
            touching.extend(from.filter(|&from| from != group).map(|from| (from, group)));
        }
    }
    let circular = |&&(from, to): &&(u32, u32)| touching.contains(&(to, from));
    if let Some(&(one, other)) = touching.iter().find(circular) {
        return Err(CutError::CircularGroups { one, other });
    }
    let handover = |&(from, to)| handover(graph, (from, &members[&from]), (to, &members[&to]));
    touching.iter().map(handover).collect()
}

fn handover(
    graph: &JointGraph,
    (producer, makes): (u32, &[u32]),
    (consumer, reads): (u32, &[u32]),
) -> Result<Handover, CutError> {
    let pair = pair(graph, makes, reads);
    let problem = Problem::new(&pair, &Wishes::default())?;
    let choice = cheapest(&problem, Wishes::default().nearest)?;
    let needed = (0..pair.len()).filter(|&id| problem.phases.needed[id]);
    let cost = |id: usize| match capacity(&pair, id) {
        Capacity::Finite(capacity) => capacity,
        Capacity::Infinite => 0,
    };
    let cut = Cut::of(&problem, &choice, Instant::now());
    Ok(Handover {
        producer,
        consumer,
        read: cut.saved,
        recomputed: cut.recomputed,
        cost: cut.cost,
        plain_cost: needed.map(cost).sum(),
    })
}

/// The joint graph of two groups: its inputs are the values that the producer reads, its backward pass is the consumer.
fn pair(graph: &JointGraph, makes: &[u32], reads: &[u32]) -> JointGraph {
    let inside: BTreeSet<u32> = makes.iter().chain(reads).copied().collect();
    let given: BTreeSet<u32> = (makes.iter())
        .flat_map(|&id| graph.inputs.of(id as usize))
        .copied()
        .filter(|read| !inside.contains(read))
        .collect();
    let mut nodes: Vec<u32> = inside.union(&given).copied().collect();
    nodes.sort_unstable();
    let consumer: BTreeSet<u32> = reads.iter().copied().collect();
    let outside = |&user: &u32| !inside.contains(&user);
    let properties = |&id: &u32| {
        let node = &graph.nodes[id as usize];
        let read_elsewhere = graph.users.of(id as usize).iter().any(outside);
        let late = consumer.contains(&id);
        Properties {
            input: given.contains(&id),
            tangent: late,
            forward_output: !late
                && (node.forward_output || node.backward_output || read_elsewhere),
            backward_output: late,
            view_of: None,
            part_of: None,
            ..node.clone()
        }
    };
    let place: BTreeMap<u32, u32> = nodes.iter().copied().zip(0..).collect();
    let pairs = pairs_within(graph, &inside, &place);
    assembled(
        graph.names_of(&nodes),
        nodes.iter().map(properties).collect(),
        &pairs,
        graph.shared_reads,
    )
}

/// Pairs of an input and its reader, for readers of a group.
fn pairs_within(
    graph: &JointGraph,
    inside: &BTreeSet<u32>,
    place: &BTreeMap<u32, u32>,
) -> Vec<(u32, u32)> {
    let mut pairs = Vec::new();
    for (&id, &user) in place.iter().filter(|(id, _)| inside.contains(id)) {
        let inputs = graph.inputs.of(id as usize).iter();
        let known = inputs.filter_map(|read| place.get(read));
        pairs.extend(known.map(|&read| (read, user)));
    }
    pairs
}
