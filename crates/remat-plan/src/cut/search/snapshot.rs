//! What is there at moments of the backward pass, as far as the graph alone tells.

use crate::cut::evaluate::choice::Question;
use crate::cut::evaluate::kernels::{fused, is_written_again};
use crate::cut::graph::joint_graph::JointGraph;
use crate::cut::search::lagrangian::Moment;

/// The beginning of the backward pass, and moments spread over the rest of it, `count` in all.
pub(crate) fn moments(question: &Question<'_>, count: usize) -> Vec<Moment> {
    let sketch = Sketch::of(question);
    let last = sketch.ops.len();
    let mut ops: Vec<usize> = (0..count).map(|k| k * last / count.max(1)).collect();
    ops.dedup();
    ops.into_iter().map(|op| sketch.moment(op)).collect()
}

/// What the graph alone tells of lifetimes in the backward pass, whose ops are numbered from 1; 0 is its beginning.
pub(crate) struct Sketch<'a> {
    question: &'a Question<'a>,
    /// The ops of the backward pass.
    ops: Vec<u32>,
    /// The node whose memory each is in.
    pub(crate) root: Vec<u32>,
    /// From when to when the backward pass needs each value for certain: from when it makes it, or first reads it itself, to when a kernel of
    /// its own last reads it. The first after the last for those that it need not.
    there: Vec<(usize, usize)>,
    /// Whatever is saved, no kernel computes the value on its way.
    written: Vec<bool>,
    /// The caller holds what is in the memory of this node.
    held: Vec<bool>,
}

impl<'a> Sketch<'a> {
    pub(crate) fn of(question: &'a Question<'a>) -> Sketch<'a> {
        let (graph, phases) = (question.graph, &question.phases);
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
        Sketch {
            there: needed(question, &ops, &once(graph, &ops, &root, &inside)),
            written: (0..count).map(written).collect(),
            question,
            ops,
            root,
            held,
        }
    }

    /// The beginning of the backward pass, and of so many parts of it the op while which most is there whatever is saved.
    pub(crate) fn crests(&self, parts: usize) -> Vec<usize> {
        let (bytes, ops) = (self.about(), self.ops.len());
        let mut crests = vec![0];
        for part in 0..parts {
            let (first, after) = (1 + part * ops / parts, 1 + (part + 1) * ops / parts);
            crests.extend((first..after).max_by_key(|&op| (bytes[op], op)));
        }
        crests
    }

    /// Bytes that are there at each op, about: memory that several values are in counts from the first to the last of them.
    fn about(&self) -> Vec<u64> {
        let nodes = &self.question.graph.nodes;
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

    pub(crate) fn moment(&self, op: usize) -> Moment {
        let nodes = &self.question.graph.nodes;
        let mut there = self.held.clone();
        for (id, &(first, last)) in self.there.iter().enumerate() {
            there[self.root[id] as usize] |= self.written[id] && first <= op && op <= last;
        }
        let fixed = (0..there.len()).filter(|&root| there[root]);
        let bytes: u64 = fixed.map(|root| nodes[root].bytes).sum();
        let running = op.checked_sub(1).map(|place| self.ops[place] as usize);
        Moment {
            fixed: bytes + running.map_or(0, |id| nodes[id].workspace),
            held: self.held_if_saved(op, &there),
            needed: self.needed_from(op),
            there,
        }
    }

    /// What a kernel of the backward pass itself reads while this op runs or later, or returns.
    fn needed_from(&self, op: usize) -> Vec<bool> {
        let output = |id: usize| self.question.graph.nodes[id].backward_output;
        let read = |id: usize| self.there[id].0 != usize::MAX && self.there[id].1 >= op;
        let needed = |id: usize| self.question.phases.forward[id] && (read(id) || output(id));
        (0..self.there.len()).map(needed).collect()
    }

    /// Bytes that saving each node holds for certain. Nodes in the same memory share them, so that together they are not more.
    fn held_if_saved(&self, op: usize, there: &[bool]) -> Vec<u64> {
        let graph = self.question.graph;
        let holds = |id: usize| {
            let later = op == 0 || (self.there[id].0 != usize::MAX && self.there[id].1 >= op);
            self.question.phases.forward[id]
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
            match holds(id) {
                true => graph.nodes[root].bytes / sharers[root],
                false => 0,
            }
        };
        (0..graph.len()).map(share).collect()
    }
}

/// Which values are inside kernels whatever is saved: those that one op reads. Others may be written for the sake of few reads.
fn once(graph: &JointGraph, ops: &[u32], root: &[u32], inside: &[bool]) -> Vec<bool> {
    let mut readers = vec![0u32; graph.len()];
    for &id in ops {
        for &read in graph.inputs.of(id as usize) {
            if graph.nodes[id as usize].view_of.is_none() {
                readers[root[read as usize] as usize] += 1;
            }
        }
    }
    let is_once = |(id, &inside): (usize, &bool)| {
        let told = graph.nodes[root[id] as usize].written.is_some();
        inside && (told || readers[root[id] as usize] <= 1)
    };
    inside.iter().enumerate().map(is_once).collect()
}

/// When each value is needed by the ops of the backward pass themselves; what is `inside` kernels for certain reads when the last of them runs.
fn needed(question: &Question<'_>, ops: &[u32], inside: &[bool]) -> Vec<(usize, usize)> {
    let graph = question.graph;
    let mut there = vec![(usize::MAX, 0); graph.len()];
    for (op, id) in (1..=ops.len())
        .rev()
        .zip(ops.iter().rev().map(|&id| id as usize))
    {
        let last = match graph.nodes[id].backward_output {
            true => ops.len(),
            false => op.max(there[id].1),
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
