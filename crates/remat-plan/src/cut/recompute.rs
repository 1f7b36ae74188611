//! What follows from what is saved.

use super::model::JointGraph;
use super::phases::Phases;

/// What the backward pass does with what it is handed. Nodes are in the order of the graph.
pub(super) struct Recompute {
    /// Of what is saved, what the backward pass reads.
    pub(super) read: Vec<u32>,
    /// The nodes of `V_f` that it computes.
    pub(super) recomputed: Vec<u32>,
    /// Inputs of the forward pass that it reads although they are not saved; there are none if the choice is valid.
    pub(super) missing: Vec<u32>,
}

impl Recompute {
    /// Follows what the backward pass needs to what is saved, in time `O(nodes + edges)`.
    pub(super) fn of(graph: &JointGraph, phases: &Phases, saved: &[bool]) -> Recompute {
        let mut wanted = phases.needed.clone();
        let mut recompute = Recompute {
            read: Vec::new(),
            recomputed: Vec::new(),
            missing: Vec::new(),
        };
        for id in (0..graph.len()).rev().filter(|&id| phases.forward[id]) {
            let list = match (wanted[id], saved[id], graph.nodes[id].input) {
                (false, ..) => continue,
                (_, true, _) => &mut recompute.read,
                (_, _, true) => &mut recompute.missing,
                _ => {
                    for &read in graph.inputs.of(id) {
                        wanted[read as usize] = true;
                    }
                    &mut recompute.recomputed
                }
            };
            list.push(id as u32);
        }
        recompute.read.reverse();
        recompute.recomputed.reverse();
        recompute
    }
}
