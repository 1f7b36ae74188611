//! The peak of a step, by running it with reference counts.

use crate::cut::graph::joint_graph::JointGraph;
use crate::cut::verify::check::{Check, Place};
use crate::cut::verify::unwritten::unwritten;
use std::collections::HashMap;

/// The most bytes of the step at once. `early` says which nodes the forward pass runs.
pub(crate) fn peak(check: &Check<'_>, early: &[bool]) -> u64 {
    let mut replay = Replay {
        check,
        graph: check.graph,
        memory: Memory::default(),
        values: HashMap::new(),
    };
    replay.forward(early);
    let runs: Vec<bool> = (0..check.graph.len()).map(|id| check.late(id)).collect();
    replay.turn(&runs);
    replay.backward(&runs);
    replay.memory.peak
}

struct Replay<'c, 'a> {
    check: &'c Check<'a>,
    graph: &'a JointGraph,
    memory: Memory,
    values: HashMap<usize, Value>,
}

impl Replay<'_, '_> {
    fn given(&mut self, id: usize) {
        let buffer = self.memory.take(self.graph.nodes[id].bytes);
        self.values.insert(id, Value::given(buffer));
    }

    fn forward(&mut self, early: &[bool]) {
        let (check, graph) = (self.check, self.graph);
        let ids = 0..graph.len();
        let inputs = ids.clone().filter(|&id| check.place[id] == Place::Input);
        inputs.for_each(|id| self.given(id));
        let order: Vec<usize> = ids.filter(|&id| early[id]).collect();
        let returned = |id: usize| graph.nodes[id].forward_output;
        let keeps = |id: usize| usize::from(check.saved[id]) + usize::from(returned(id));
        self.pass(&order, early, keeps);
        // Beside the forward outputs, only saved values can be reached now.
        for &id in order.iter().filter(|&&id| returned(id)) {
            let buffer = self.values[&id].buffer;
            buffer
                .into_iter()
                .for_each(|buffer| self.memory.refer(buffer));
        }
        self.values
            .retain(|&id, _| check.place[id] == Place::Input || check.saved[id] || returned(id));
    }

    /// Goes from the forward pass to the backward pass, which runs these nodes: saved values have its readers,
    /// tangents come.
    fn turn(&mut self, runs: &[bool]) {
        for id in 0..self.graph.len() {
            let readers = self.check.users(id).filter(|&user| runs[user]).count();
            match self.values.get_mut(&id) {
                Some(value) if self.check.place[id] != Place::Input => {
                    value.readers = readers + usize::from(self.graph.nodes[id].backward_output);
                    let unread = value.readers == 0 || self.check.again(id);
                    let buffer = value.buffer.filter(|_| unread);
                    buffer
                        .into_iter()
                        .for_each(|buffer| self.memory.drop(buffer));
                }
                _ => {}
            }
            if self.graph.nodes[id].tangent {
                self.given(id);
            }
        }
        self.memory.look(0);
    }

    fn backward(&mut self, runs: &[bool]) {
        let graph = self.graph;
        let keeps = |id: usize| usize::from(graph.nodes[id].backward_output);
        self.pass(&self.check.order(), runs, keeps);
    }

    /// Runs ops; `keeps` says how many references outlast the pass.
    fn pass(&mut self, order: &[usize], runs: &[bool], keeps: impl Fn(usize) -> usize) {
        let unwritten = unwritten(self.check, order, runs, &keeps);
        let check = self.check;
        let readers = |id: usize| check.users(id).filter(|&user| runs[user]).count() + keeps(id);
        let mut parts: HashMap<usize, usize> = HashMap::new();
        for &id in order {
            let readers = readers(id);
            if unwritten.contains(&id) {
                self.memory.look(self.graph.nodes[id].workspace);
                self.values.insert(id, Value::computed_where_read(readers));
                if readers == 0 {
                    self.leave(id);
                }
                continue;
            }
            let buffer = self.buffer(id, runs, &mut parts);
            self.memory.look(self.graph.nodes[id].workspace);
            let value = Value {
                buffer: Some(buffer),
                readers,
            };
            self.values.insert(id, value);
            self.leave(id);
            if readers == 0 {
                self.memory.drop(buffer);
            }
        }
    }

    /// The buffer of a value that is written, and those of the results of an op of several results.
    fn buffer(&mut self, id: usize, runs: &[bool], parts: &mut HashMap<usize, usize>) -> usize {
        let node = &self.graph.nodes[id];
        let base = node.view_of.map(|base| &self.values[&(base as usize)]);
        let buffer = match (base.and_then(|base| base.buffer), parts.remove(&id)) {
            (Some(buffer), _) => {
                self.memory.refer(buffer);
                buffer
            }
            (None, Some(part)) => part,
            (None, None) => self.memory.take(node.bytes),
        };
        if node.part_of.is_none() || node.view_of.is_some() {
            self.take_parts(id, buffer, runs, parts);
        }
        buffer
    }

    /// Makes all results of an op of several results, and those of results that are lists in turn. Results that
    /// nobody takes are in the buffer of the list that they are in, and in none if the op makes a view.
    fn take_parts(
        &mut self,
        op: usize,
        buffer: usize,
        runs: &[bool],
        parts: &mut HashMap<usize, usize>,
    ) {
        let own = self.graph.nodes[op].view_of.is_none().then_some(buffer);
        let mut lists = vec![(op, own)];
        while let Some((list, around)) = lists.pop() {
            for part in self.check.parts(list) {
                let bytes = self.graph.nodes[part].bytes;
                let home = match around {
                    _ if runs[part] => {
                        let taken = self.memory.take(bytes);
                        parts.insert(part, taken);
                        Some(taken)
                    }
                    Some(buffer) => {
                        self.memory.grow(buffer, bytes);
                        Some(buffer)
                    }
                    None => None,
                };
                lists.push((part, home));
            }
        }
    }

    /// Ends the reads of a value. An input that nobody else reads is dropped; one that was never written ends its own
    /// reads in turn.
    fn leave(&mut self, id: usize) {
        let mut leaving = vec![id];
        while let Some(id) = leaving.pop() {
            for &read in self.graph.inputs.of(id) {
                let value = self.values.get_mut(&(read as usize));
                // Nodes are in topological order, and `Check::early` and `Check::order` hold the inputs of what they
                // hold. All others are given (inputs, tangents) or saved: `Check::follow` refuses a plan in which the
                // backward pass reads an input that is not saved, and what is saved outlasts the forward pass.
                let value = value.expect("inputs run before their readers");
                value.readers -= 1;
                match (value.readers, value.buffer) {
                    (0, Some(buffer)) => self.memory.drop(buffer),
                    (0, None) => leaving.push(read as usize),
                    _ => {}
                }
            }
        }
    }
}

#[derive(Debug)]
struct Value {
    /// `None` for a value that is computed where it is read.
    buffer: Option<usize>,
    /// Reads to come, and references that stay.
    readers: usize,
}

impl Value {
    /// A value that stays, whoever reads it.
    fn given(buffer: usize) -> Value {
        Value {
            buffer: Some(buffer),
            readers: usize::MAX / 2,
        }
    }

    fn computed_where_read(readers: usize) -> Value {
        Value {
            buffer: None,
            readers,
        }
    }
}

/// Buffers with reference counts.
#[derive(Default)]
struct Memory {
    /// Bytes and references of each buffer.
    buffers: Vec<(u64, usize)>,
    there: u64,
    peak: u64,
}

impl Memory {
    fn take(&mut self, bytes: u64) -> usize {
        self.buffers.push((bytes, 1));
        self.there += bytes;
        self.buffers.len() - 1
    }

    fn grow(&mut self, buffer: usize, bytes: u64) {
        self.buffers[buffer].0 += bytes;
        self.there += bytes;
    }

    fn refer(&mut self, buffer: usize) {
        self.buffers[buffer].1 += 1;
    }

    fn drop(&mut self, buffer: usize) {
        let (bytes, references) = &mut self.buffers[buffer];
        *references -= 1;
        if *references == 0 {
            self.there -= *bytes;
        }
    }

    /// Records the peak while an op of so much workspace runs.
    fn look(&mut self, workspace: u64) {
        self.peak = self.peak.max(self.there + workspace);
    }
}
