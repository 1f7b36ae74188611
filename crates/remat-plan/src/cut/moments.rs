//! What is there at moments of the backward pass, as far as the graph alone tells.

use super::lagrange::Moment;
use super::worth::Question;

/// The beginning of the backward pass, and moments spread over the rest of it, `count` in all.
pub(super) fn moments(question: &Question<'_>, count: usize) -> Vec<Moment> {
    let sketch = Sketch::of(question);
    let last = sketch.ops;
    let mut ops: Vec<usize> = (0..count).map(|k| k * last / count.max(1)).collect();
    ops.dedup();
    ops.into_iter().map(|op| sketch.moment(op)).collect()
}

/// What the graph alone tells of lifetimes in the backward pass, whose ops are numbered from 1; 0 is its beginning.
struct Sketch<'a> {
    question: &'a Question<'a>,
    ops: usize,
    /// The node whose memory each is in.
    root: Vec<u32>,
    /// When each value is there for certain, whatever is saved: of what the backward pass makes from when it is made, of the others from
    /// when the backward pass first reads it itself; to when it last does. The first after the last for those that never are.
    there: Vec<(usize, usize)>,
    /// The caller holds what is in the memory of this node.
    held: Vec<bool>,
}

impl<'a> Sketch<'a> {
    fn of(question: &'a Question<'a>) -> Sketch<'a> {
        let (graph, phases) = (question.graph, &question.phases);
        let count = graph.len();
        let mut root: Vec<u32> = (0..count as u32).collect();
        let mut there = vec![(usize::MAX, 0); count];
        let mut ops = 0;
        for id in 0..count {
            if let Some(base) = graph.nodes[id].view_of {
                root[id] = root[base as usize];
            }
            if phases.backward[id] && !graph.nodes[id].tangent {
                ops += 1;
                there[id] = (ops, ops);
                for &read in graph.inputs.of(id) {
                    let there = &mut there[read as usize];
                    *there = (there.0.min(ops), ops);
                }
            }
        }
        let mut held = vec![false; count];
        for (id, node) in graph.nodes.iter().enumerate() {
            let whole_pass = node.input || node.forward_output || node.tangent;
            held[root[id] as usize] |= whole_pass;
            if node.backward_output && phases.backward[id] {
                there[id].1 = ops;
            }
        }
        Sketch {
            question,
            ops,
            root,
            there,
            held,
        }
    }

    fn moment(&self, op: usize) -> Moment {
        let mut there = self.held.clone();
        for (id, &(first, last)) in self.there.iter().enumerate() {
            there[self.root[id] as usize] |= first <= op && op <= last;
        }
        let bytes = |root: usize| self.question.graph.nodes[root].bytes;
        let fixed = (0..there.len()).filter(|&root| there[root]);
        Moment {
            fixed: fixed.map(bytes).sum(),
            held: self.held_if_saved(op, &there),
        }
    }

    /// Bytes that saving each node holds for certain. Nodes in the same memory share them, so that together they are not more.
    fn held_if_saved(&self, op: usize, there: &[bool]) -> Vec<u64> {
        let graph = self.question.graph;
        let holds = |id: usize| {
            let later = op == 0 || (self.there[id].0 > op && self.there[id].0 != usize::MAX);
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
