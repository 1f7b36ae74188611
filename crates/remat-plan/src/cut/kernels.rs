//! Which values no kernel writes.
//!
//! A compiler computes an op that can be part of a kernel wherever its result is read, be it in several kernels: the value is never in
//! memory. It is written where the pass hands it on, where an op that is part of no such kernel reads it, and where it is a reduction,
//! which those that read it would have to begin again for each of their elements (section 3.1 of the paper; Inductor does so).

use super::model::JointGraph;

/// Where a value is, as far as is known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Memory,
    /// In kernels, if all that reads it is.
    Kernels,
    /// In kernels, as the caller knows, unless it is handed on.
    Told,
}

/// For each node whether a pass makes its value and never writes it. `pass` lists what it runs, in order; `runs` says the same of each node;
/// `keeps` what it hands on.
///
/// A view is where that is of which it is a view; both are written if one of them has to be. Takes time `O(nodes + edges)`.
pub(super) fn inside(
    graph: &JointGraph,
    pass: &[u32],
    runs: &[bool],
    keeps: impl Fn(usize) -> bool,
) -> Vec<bool> {
    let mut places = vec![Place::Memory; graph.len()];
    let base = |id: usize| graph.nodes[id].view_of.map(|base| base as usize);
    for id in pass.iter().map(|&id| id as usize) {
        places[id] = base(id).map_or_else(|| place(graph, id), |base| places[base]);
    }
    for id in pass.iter().rev().map(|&id| id as usize) {
        let apart = places[id] == Place::Kernels && !fuses_with_readers(graph, id, runs);
        if apart || keeps(id) || has_parts(graph, id) {
            places[id] = Place::Memory;
        }
        if let (Place::Memory, Some(base)) = (places[id], base(id)) {
            places[base] = Place::Memory;
        }
    }
    let mut inside = vec![false; graph.len()];
    for id in pass.iter().map(|&id| id as usize) {
        inside[id] = base(id).map_or(places[id] != Place::Memory, |base| inside[base]);
    }
    inside
}

/// Where a value that is no view can be.
fn place(graph: &JointGraph, id: usize) -> Place {
    let node = &graph.nodes[id];
    match node.written {
        _ if node.part_of.is_some() => Place::Memory,
        Some(true) => Place::Memory,
        Some(false) => Place::Told,
        None if node.fusible && !node.reduction => Place::Kernels,
        None => Place::Memory,
    }
}

/// It is an op of several results, which are made together.
fn has_parts(graph: &JointGraph, id: usize) -> bool {
    let part = |&user: &u32| {
        let node = &graph.nodes[user as usize];
        node.part_of == Some(id as u32) && node.view_of.is_none()
    };
    !graph.nodes[id].savable && graph.users.of(id).iter().any(part)
}

fn fuses_with_readers(graph: &JointGraph, id: usize, runs: &[bool]) -> bool {
    let mut readers = graph
        .users
        .of(id)
        .iter()
        .filter(|&&user| runs[user as usize]);
    graph.nodes[id].fusible && readers.all(|&user| graph.nodes[user as usize].fusible)
}

/// Whether the value is written for certain if the backward pass recomputes it, or makes it as a view of what it recomputes, whatever else
/// is saved. `root` is what it is a view of, in the end; `backward` says what the backward pass runs in any case.
pub(super) fn is_written_again(
    graph: &JointGraph,
    id: usize,
    root: usize,
    backward: &[bool],
) -> bool {
    match place(graph, root) {
        Place::Memory => true,
        Place::Told => graph.nodes[id].backward_output,
        Place::Kernels => {
            graph.nodes[id].backward_output || !fuses_with_readers(graph, id, backward)
        }
    }
}
