//! Snapshots: the values in memory at moments of the backward pass, as far as the graph alone tells.

use crate::cut::evaluate::choice::Problem;
use crate::cut::evaluate::kernels::{fused, is_written_again};
use crate::cut::graph::joint_graph::JointGraph;

/// Memory at a moment of the backward pass.
pub(crate) struct Snapshot {
    /// Bytes that are there whatever is saved.
    pub(crate) fixed: u64,
    /// Bytes that are there besides if a node is saved; at most these, where nodes share memory.
    pub(crate) held: Vec<u64>,
    /// Whether the memory of each node is taken whatever is saved.
    pub(crate) there: Vec<bool>,
    /// Whether the backward pass needs each node of the forward pass from then on, apart from recomputing others from
    /// it.
    pub(crate) needed: Vec<bool>,
}

/// Snapshots of the beginning of the backward pass and of moments spread over the rest of it, `count` in all.
pub(crate) fn snapshots(problem: &Problem<'_>, count: usize) -> Vec<Snapshot> {
    let lifetimes = Lifetimes::of(problem);
    let last = lifetimes.ops.len();
    let mut ops: Vec<usize> = (0..count).map(|k| k * last / count.max(1)).collect();
    ops.dedup();
    ops.into_iter().map(|op| lifetimes.snapshot(op)).collect()
}

/// Lifetimes of values in the backward pass, as far as the graph alone tells. Its ops are numbered from 1; 0 is its
/// beginning.
pub(crate) struct Lifetimes<'a> {
    problem: &'a Problem<'a>,
    /// The ops of the backward pass.
    ops: Vec<u32>,
    /// The node whose memory each is in.
    pub(crate) root: Vec<u32>,
    /// The first and the last moment at which the backward pass certainly needs each value: it makes or first reads
    /// the value itself, and a kernel of its own last reads it. The first is after the last for values that it does
    /// not certainly need.
    there: Vec<(usize, usize)>,
    /// No kernel computes the value on its way, whatever is saved.
    written: Vec<bool>,
    /// The caller holds the memory of the node.
    held: Vec<bool>,
}

impl<'a> Lifetimes<'a> {
    pub(crate) fn of(problem: &'a Problem<'a>) -> Lifetimes<'a> {
        let (graph, phases) = (problem.graph, &problem.phases);
        let count = graph.len();
        let is_op = |&id: &u32| phases.backward[id as usize] && !graph.nodes[id as usize].tangent;
        let ops: Vec<u32> = (0..count as u32).filter(is_op).collect();
        let mut root: Vec<u32> = (0..count as u32).collect();
        let mut held = vec![false; count];
        for (id, node) in graph.nodes.iter().enumerate() {
            if let Some(base) = node.view_of {
                root[id] = root[base as usize];
            }
            held[root[id] as usize] |= node.input || node.forward_output || node.tangent;
        }
        let inside = fused(graph, &ops, &phases.backward, |id| {
            graph.nodes[id].backward_output
        });
        let written = |id: usize| match root[id] as usize {
            root if phases.forward[root] => is_written_again(graph, id, root, &phases.backward),
            _ => !inside[id],
        };
        Lifetimes {
            there: needed(problem, &ops, &read_once(graph, &ops, &root, &inside)),
            written: (0..count).map(written).collect(),
            problem,
            ops,
            root,
            held,
        }
    }

    /// The beginning of the backward pass, and for so many parts of it the op during which the most bytes are there
    /// whatever is saved.
    pub(crate) fn crests(&self, parts: usize) -> Vec<usize> {
        let (bytes, ops) = (self.about(), self.ops.len());
        let mut crests = vec![0];
        for part in 0..parts {
            let (first, after) = (1 + part * ops / parts, 1 + (part + 1) * ops / parts);
            crests.extend((first..after).max_by_key(|&op| (bytes[op], op)));
        }
        crests
    }

    /// About the bytes that are there at each op: memory of several values counts from the first to the last of them.
    fn about(&self) -> Vec<u64> {
        let nodes = &self.problem.graph.nodes;
        let mut lives = vec![(usize::MAX, 0); nodes.len()];
        for (id, &(first, last)) in self.there.iter().enumerate() {
            let root = self.root[id] as usize;
            if self.written[id] && !self.held[root] {
                lives[root] = (lives[root].0.min(first), lives[root].1.max(last));
            }
        }
        let mut bytes = vec![0u64; self.ops.len() + 2];
        for (root, (first, last)) in lives.into_iter().enumerate() {
            if first <= last {
                bytes[first] = bytes[first].wrapping_add(nodes[root].bytes);
                bytes[last + 1] = bytes[last + 1].wrapping_sub(nodes[root].bytes);
            }
        }
        let mut there = 0u64;
        let running =
            std::iter::once(0).chain(self.ops.iter().map(|&id| nodes[id as usize].workspace));
        for (bytes, workspace) in bytes.iter_mut().zip(running) {
            there = there.wrapping_add(*bytes);
            *bytes = there + workspace;
        }
        bytes
    }

    pub(crate) fn snapshot(&self, op: usize) -> Snapshot {
        let nodes = &self.problem.graph.nodes;
        let mut there = self.held.clone();
        for (id, &(first, last)) in self.there.iter().enumerate() {
            there[self.root[id] as usize] |= self.written[id] && first <= op && op <= last;
        }
        let fixed = (0..there.len()).filter(|&root| there[root]);
        let bytes: u64 = fixed.map(|root| nodes[root].bytes).sum();
        let running = op.checked_sub(1).map(|place| self.ops[place] as usize);
        Snapshot {
            fixed: bytes + running.map_or(0, |id| nodes[id].workspace),
            held: self.held_if_saved(op, &there),
            needed: self.needed_from(op),
            there,
        }
    }

    /// Whether a kernel of the backward pass itself reads each node while this op runs or later, or returns it.
    fn needed_from(&self, op: usize) -> Vec<bool> {
        let output = |id: usize| self.problem.graph.nodes[id].backward_output;
        let read = |id: usize| self.there[id].0 != usize::MAX && self.there[id].1 >= op;
        let needed = |id: usize| self.problem.phases.forward[id] && (read(id) || output(id));
        (0..self.there.len()).map(needed).collect()
    }

    /// Bytes that saving each node certainly holds. Nodes in the same memory share its bytes, so that together they
    /// hold no more.
    fn held_if_saved(&self, op: usize, there: &[bool]) -> Vec<u64> {
        let graph = self.problem.graph;
        let holds = |id: usize| {
            let later = op == 0 || (self.there[id].0 != usize::MAX && self.there[id].1 >= op);
            self.problem.phases.forward[id]
                && graph.nodes[id].savable
                && later
                && !there[self.root[id] as usize]
        };
        let mut sharers = vec![0u64; graph.len()];
        for id in (0..graph.len()).filter(|&id| holds(id)) {
            sharers[self.root[id] as usize] += 1;
        }
        let share = |id: usize| {
            let root = self.root[id] as usize;
            if holds(id) {
                graph.nodes[root].bytes / sharers[root]
            } else {
                0
            }
        };
        (0..graph.len()).map(share).collect()
    }
}

/// Whether each value is inside kernels whatever is saved: at most one op reads it. Others may be written so that
/// kernels read less.
fn read_once(graph: &JointGraph, ops: &[u32], root: &[u32], inside: &[bool]) -> Vec<bool> {
    let mut readers = vec![0u32; graph.len()];
    for &id in ops {
        for &read in graph.inputs.of(id as usize) {
            if graph.nodes[id as usize].view_of.is_none() {
                readers[root[read as usize] as usize] += 1;
            }
        }
    }
    let is_read_once = |(id, &inside): (usize, &bool)| {
        let told = graph.nodes[root[id] as usize].written.is_some();
        inside && (told || readers[root[id] as usize] <= 1)
    };
    inside.iter().enumerate().map(is_read_once).collect()
}

/// The first and last moment at which the ops of the backward pass themselves need each value. A value that is
/// certainly `inside` kernels reads its inputs until the last of them runs.
fn needed(problem: &Problem<'_>, ops: &[u32], inside: &[bool]) -> Vec<(usize, usize)> {
    let graph = problem.graph;
    let mut there = vec![(usize::MAX, 0); graph.len()];
    for (op, id) in (1..=ops.len())
        .rev()
        .zip(ops.iter().rev().map(|&id| id as usize))
    {
        let last = if graph.nodes[id].backward_output {
            ops.len()
        } else {
            op.max(there[id].1)
        };
        there[id] = (op, last);
        let read_at = if inside[id] { last } else { op };
        for &read in graph.inputs.of(id) {
            let there = &mut there[read as usize];
            *there = (op, there.1.max(read_at));
        }
    }
    there
}
