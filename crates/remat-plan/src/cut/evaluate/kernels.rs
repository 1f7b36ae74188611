//! The values that no kernel writes.
//!
//! A compiler computes an op that can be part of a kernel wherever its result is read, in several kernels if need be:
//! the value is never in memory. A value is written in these cases:
//!
//! - The pass hands it on.
//! - An op reads it that is part of no such kernel.
//! - It is a reduction, which its readers would have to begin again for each of their elements (section 3.1 of the
//!   paper; Inductor does so).
//! - Kernels read it that cannot be one, because one needs the result of an op between them, and computing it twice
//!   is heavy or would read more values than the description allows (`shared_reads`). Else the sum of residual
//!   connections would be computed anew in every layer from those of all layers before.

use crate::cut::graph::description::{MOST_SHARED_READS, SHARED_READS};
use crate::cut::graph::joint_graph::JointGraph;

/// The place of a value, as far as is known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Memory,
    /// In kernels, if all its readers are.
    Kernels,
    /// In kernels, as the caller says, unless it is handed on.
    Told,
}

/// For each node whether a pass makes its value and never writes it. `pass` lists the nodes that it runs, in order;
/// `runs` says the same of each node; `keeps` says whether the pass hands a value on.
///
/// A view is where its base is; both are written if one of them has to be. Takes time `O(nodes + edges)`.
pub(crate) fn inside(
    graph: &JointGraph,
    pass: &[u32],
    runs: &[bool],
    keeps: impl Fn(usize) -> bool,
) -> Vec<bool> {
    let inside = fused(graph, pass, runs, keeps);
    // The usual limit is small, and the search asks tens of thousands of times.
    if graph.shared_reads < FEW {
        less_shared(graph, pass, runs, inside, Sources::<FEW>::new(graph))
    } else {
        less_shared(graph, pass, runs, inside, Sources::<MANY>::new(graph))
    }
}

/// Room for more values than the usual limit, and than the highest.
const FEW: usize = SHARED_READS as usize + 1;
const MANY: usize = MOST_SHARED_READS as usize + 1;

/// The values `inside` kernels, less those that kernels which cannot be one share and that are heavy or read too many
/// others.
fn less_shared<const WIDTH: usize>(
    graph: &JointGraph,
    pass: &[u32],
    runs: &[bool],
    mut inside: Vec<bool>,
    mut sources: Sources<WIDTH>,
) -> Vec<bool> {
    let readers = Readers::of(graph, pass, runs);
    for id in pass.iter().map(|&id| id as usize) {
        match graph.nodes[id].view_of {
            Some(base) => inside[id] &= inside[base as usize],
            None if !inside[id] || graph.nodes[id].written.is_some() => {}
            None => inside[id] = !(readers.are_apart(id) && sources.exceed(graph, id, &inside)),
        }
        sources.found(graph, id, &inside);
    }
    inside
}

/// The readers of each value in a pass, also through views.
struct Readers {
    /// Ops on the longest way to each value that are part of no kernel.
    level: Vec<u32>,
    /// Of all that read a value, the most such ops.
    top: Vec<u32>,
    count: Vec<u32>,
}

impl Readers {
    fn of(graph: &JointGraph, pass: &[u32], runs: &[bool]) -> Readers {
        let mut readers = Readers {
            level: vec![0; graph.len()],
            top: vec![0; graph.len()],
            count: vec![0; graph.len()],
        };
        for id in pass.iter().map(|&id| id as usize) {
            let inputs = graph.inputs.of(id).iter().map(|&read| read as usize);
            let above = |read: usize| {
                let fuse = graph.nodes[read].fusible && graph.nodes[id].fusible;
                readers.level[read] + u32::from(!fuse)
            };
            readers.level[id] = inputs
                .filter(|&read| runs[read])
                .map(above)
                .max()
                .unwrap_or(0);
            readers.reads(graph, id, runs);
        }
        readers
    }

    /// Records the reads of a node. A view of a value does not count as its reader.
    fn reads(&mut self, graph: &JointGraph, id: usize, runs: &[bool]) {
        let root = |mut id: usize| {
            while let (true, Some(base)) = (runs[id], graph.nodes[id].view_of) {
                id = base as usize;
            }
            id
        };
        let own = root(id);
        let read = graph.inputs.of(id).iter().map(|&read| root(read as usize));
        for value in read.filter(|&value| value != own) {
            self.count[value] += 1;
            self.top[value] = self.top[value].max(self.level[id]);
        }
    }

    /// Several ops read the value, and one of them cannot be in its kernel.
    fn are_apart(&self, id: usize) -> bool {
        self.count[id] > 1 && self.top[id] > self.level[id]
    }
}

/// The values in memory from which each value inside kernels is computed, with room for `WIDTH` of them.
struct Sources<const WIDTH: usize> {
    /// Values that kernels which cannot be one may read in place of one; less than `WIDTH`.
    limit: usize,
    /// Of each node the values in memory, up to one more than the limit.
    values: Vec<[u32; WIDTH]>,
    count: Vec<u8>,
    /// The node, or one between it and the values in memory, is heavy.
    heavy: Vec<bool>,
}

impl<const WIDTH: usize> Sources<WIDTH> {
    fn new(graph: &JointGraph) -> Self {
        Sources {
            limit: graph.shared_reads.min(WIDTH - 1),
            values: vec![[0; WIDTH]; graph.len()],
            count: vec![0; graph.len()],
            heavy: vec![false; graph.len()],
        }
    }

    fn of(&self, id: usize) -> &[u32] {
        &self.values[id][..usize::from(self.count[id])]
    }

    /// Whether computing the value is heavy or reads too many others.
    fn exceed(&mut self, graph: &JointGraph, id: usize, inside: &[bool]) -> bool {
        self.found(graph, id, inside);
        self.heavy[id] || self.of(id).len() > self.limit
    }

    /// Records the values that a value is computed from; the value itself if it is in memory.
    fn found(&mut self, graph: &JointGraph, id: usize, inside: &[bool]) {
        self.count[id] = 0;
        self.heavy[id] = inside[id] && graph.nodes[id].heavy;
        if !inside[id] {
            self.add(id, id as u32);
            return;
        }
        for &read in graph.inputs.of(id) {
            let place = read as usize;
            if self.count[place] == 0 && !inside[place] {
                self.add(id, read);
                continue;
            }
            self.heavy[id] |= self.heavy[place];
            for k in 0..usize::from(self.count[place]) {
                self.add(id, self.values[place][k]);
            }
        }
    }

    fn add(&mut self, id: usize, value: u32) {
        let known = self.of(id);
        if known.len() <= self.limit && !known.contains(&value) {
            self.values[id][usize::from(self.count[id])] = value;
            self.count[id] += 1;
        }
    }
}

/// As [`inside`], for kernels each of which is taken to be one with its readers.
pub(crate) fn fused(
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
        if apart || keeps(id) || graph.parts(id).next().is_some() {
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

/// The place where a value that is no view can be.
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

fn fuses_with_readers(graph: &JointGraph, id: usize, runs: &[bool]) -> bool {
    let mut readers = graph
        .users
        .of(id)
        .iter()
        .filter(|&&user| runs[user as usize]);
    graph.nodes[id].fusible && readers.all(|&user| graph.nodes[user as usize].fusible)
}

/// Whether the value is certainly written if the backward pass recomputes it or its base, whatever else is saved.
/// `root` is the base of the value, through all views; `backward` says which nodes the backward pass runs in any
/// case.
pub(crate) fn is_written_again(
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
