//! Lifetimes of values, and from them the memory of a step.
//!
//! The count assumes the following, so that a compiled step takes no more:
//! - Inputs of the forward pass stay throughout, forward outputs from when they are made, tangents and backward
//!   outputs to the end of the backward pass: the caller holds them.
//! - The tangents come when the forward pass is over.
//! - The forward pass runs the nodes that its outputs and the saved values need, in the order of the graph. A value
//!   that is not saved is dropped after its last use there, a saved value after its last use in the backward pass.
//! - The backward pass runs its ops in the order of the graph. Directly before each op it recomputes the op's
//!   ancestors that have to be recomputed and have not been yet, in the order of the graph. So each is recomputed
//!   once, and it is dropped after its last use.
//! - A value takes its bytes, unless it stays inside kernels (`kernels.rs`): then it takes none, and the values that
//!   it is computed from are there until the last kernel that computes it has run. An op's inputs, results and
//!   workspace are there while it runs; nothing is computed in place.
//! - A view takes no bytes and keeps its base. The results of an op of several results are there from when the op
//!   runs; results that nobody reads stay as long as others are taken from the op.

use crate::cut::evaluate::kernels::inside;
use crate::cut::evaluate::recompute::Recompute;
use crate::cut::graph::joint_graph::{JointGraph, Properties};
use crate::cut::graph::phases::Phases;

/// A step as it runs.
pub(crate) struct Timeline {
    /// Ops of the backward pass and the nodes recomputed for them, by number of node.
    pub(crate) backward: Vec<u32>,
    /// Bytes while each op of the forward pass runs, between the passes, and while each op of the backward pass runs.
    pub(crate) bytes: Vec<u64>,
    /// Nanoseconds of the ops that run a second time. An op takes none if it is not compute-bound and is in one
    /// kernel with every reader of its result in the backward pass.
    pub(crate) recompute_ns: u64,
}

impl Timeline {
    /// Lays out the step that follows from the saved values, in time `O((nodes + edges) log nodes)`.
    pub(crate) fn of(graph: &JointGraph, phases: &Phases, run: &Recompute) -> Timeline {
        let forward = forward(graph, phases, run);
        let recomputed = marked(graph.len(), &run.recomputed);
        let backward = backward(graph, phases, &recomputed);
        let mut account = Account::new(graph, forward.len() + backward.len());
        let saved = marked(graph.len(), &run.read);
        account.run(&forward, 0, |id| {
            saved[id] || graph.nodes[id].forward_output
        });
        account.turn(phases, &recomputed, forward.len());
        account.run(&backward, forward.len() + 1, |id| {
            graph.nodes[id].backward_output
        });
        account.hold(|node| node.backward_output);
        Timeline {
            bytes: account.bytes(),
            recompute_ns: recompute_ns(graph, phases, &forward, &recomputed),
            backward,
        }
    }

    /// The most bytes that there are at once.
    pub(crate) fn peak(&self) -> u64 {
        self.bytes.iter().copied().max().unwrap_or(0)
    }
}

fn marked(count: usize, nodes: &[u32]) -> Vec<bool> {
    let mut marked = vec![false; count];
    for &node in nodes {
        marked[node as usize] = true;
    }
    marked
}

/// The nodes that the forward pass runs.
fn forward(graph: &JointGraph, phases: &Phases, run: &Recompute) -> Vec<u32> {
    let mut wanted = marked(graph.len(), &run.read);
    let mut nodes = Vec::new();
    for id in (0..graph.len()).rev().filter(|&id| phases.forward[id]) {
        let node = &graph.nodes[id];
        if (wanted[id] || node.forward_output) && !node.input {
            nodes.push(id as u32);
            for &read in graph.inputs.of(id) {
                wanted[read as usize] = true;
            }
        }
    }
    nodes.reverse();
    nodes
}

/// The nodes that the backward pass runs.
fn backward(graph: &JointGraph, phases: &Phases, recomputed: &[bool]) -> Vec<u32> {
    let mut missing = recomputed.to_vec();
    let mut nodes = Vec::new();
    for id in (0..graph.len()).filter(|&id| phases.backward[id] && !graph.nodes[id].tangent) {
        recompute(graph, graph.inputs.of(id), &mut missing, &mut nodes);
        nodes.push(id as u32);
    }
    let rest: Vec<u32> = (0..graph.len() as u32)
        .filter(|&id| missing[id as usize])
        .collect();
    nodes.extend(rest);
    nodes
}

/// Those of these nodes and their ancestors that are missing, in the order of the graph.
fn recompute(graph: &JointGraph, wanted: &[u32], missing: &mut [bool], nodes: &mut Vec<u32>) {
    let first = nodes.len();
    let mut work = wanted.to_vec();
    while let Some(id) = work.pop() {
        if std::mem::replace(&mut missing[id as usize], false) {
            nodes.push(id);
            work.extend(graph.inputs.of(id as usize));
        }
    }
    nodes[first..].sort_unstable();
}

/// Nanoseconds of the ops that run in both passes and are not in one kernel with all their readers in the backward
/// pass (assumption 2 of section 3.1).
fn recompute_ns(graph: &JointGraph, phases: &Phases, forward: &[u32], recomputed: &[bool]) -> u64 {
    let fused = |id: u32| {
        let runs = |user: &&u32| recomputed[**user as usize] || phases.backward[**user as usize];
        let mut users = graph.users.of(id as usize).iter().filter(runs);
        let node = &graph.nodes[id as usize];
        let cheap = node.fusible && !node.compute_bound;
        cheap && users.all(|&user| graph.nodes[user as usize].fusible)
    };
    let again = forward
        .iter()
        .filter(|&&id| recomputed[id as usize] && !fused(id));
    again.map(|&id| graph.nodes[id as usize].cost).sum()
}

/// A piece of memory: its bytes, and the first and last moment of its life.
#[derive(Clone, Copy)]
struct Piece {
    bytes: u64,
    from: u32,
    to: u32,
}

/// The memory of a step, added up pass by pass.
struct Account<'a> {
    graph: &'a JointGraph,
    /// The last moment.
    end: u32,
    /// Two pieces for each node: one of the forward pass, one for the node as the backward pass makes it.
    pieces: Vec<Piece>,
    /// The piece that each node is in, as of the pass under way.
    home: Vec<u32>,
    /// When each node last ran.
    ran: Vec<u32>,
    /// Bytes of workspace at each moment.
    workspace: Vec<u64>,
}

impl<'a> Account<'a> {
    fn new(graph: &'a JointGraph, ops: usize) -> Account<'a> {
        let end = ops as u32;
        let unused = Piece {
            bytes: 0,
            from: u32::MAX,
            to: 0,
        };
        let mut account = Account {
            graph,
            end,
            pieces: vec![unused; 2 * graph.len()],
            home: (0..graph.len() as u32).collect(),
            ran: vec![0; graph.len()],
            workspace: vec![0; ops + 1],
        };
        for id in 0..graph.len() {
            account.home[id] = match graph.nodes[id].view_of {
                Some(base) => account.home[base as usize],
                None => id as u32,
            };
            if graph.nodes[id].input {
                account.pieces[id] = Piece {
                    bytes: graph.nodes[id].bytes,
                    from: 0,
                    to: end,
                };
            }
        }
        account
    }

    /// Adds a pass that runs these nodes, the first at this moment, and hands on the values that it `keeps`.
    fn run(&mut self, nodes: &[u32], first: usize, keeps: impl Fn(usize) -> bool) {
        let running = marked(self.graph.len(), nodes);
        let inside = inside(self.graph, nodes, &running, keeps);
        let last = self.last(nodes, first as u32, &running, &inside);
        for (moment, id) in (first as u32..).zip(nodes.iter().map(|&id| id as usize)) {
            self.workspace[moment as usize] = self.graph.nodes[id].workspace;
            if !inside[id] {
                self.make(id, moment);
                self.unread(id, &running);
            }
            for &read in self.graph.inputs.of(id) {
                self.touch(read as usize, last[id]);
            }
        }
        for &id in nodes {
            self.part(id as usize);
        }
    }

    /// The moment when each of these nodes is last computed. A value inside kernels is computed with each kernel that
    /// reads it.
    fn last(&self, nodes: &[u32], first: u32, running: &[bool], inside: &[bool]) -> Vec<u32> {
        let mut last = vec![0; self.graph.len()];
        let moments = first..first + nodes.len() as u32;
        for (moment, id) in moments.rev().zip(nodes.iter().rev().map(|&id| id as usize)) {
            let readers = self.graph.users.of(id).iter().map(|&user| user as usize);
            let kernels = readers.filter(|&user| inside[id] && running[user]);
            last[id] = kernels.map(|user| last[user]).fold(moment, u32::max);
        }
        last
    }

    fn make(&mut self, id: usize, moment: u32) {
        self.touch(id, moment);
        self.ran[id] = moment;
        let piece = &mut self.pieces[self.home[id] as usize];
        if self.graph.nodes[id].view_of.is_none() {
            piece.bytes += self.graph.nodes[id].bytes;
            piece.from = moment;
        }
    }

    fn touch(&mut self, id: usize, moment: u32) {
        let piece = &mut self.pieces[self.home[id] as usize];
        piece.to = piece.to.max(moment);
    }

    /// A result of an op of several results that nobody takes stays as long as the op's tuple.
    fn unread(&mut self, id: usize, running: &[bool]) {
        if self.graph.nodes[id].view_of.is_some() {
            return;
        }
        let mut tuples = vec![id];
        while let Some(tuple) = tuples.pop() {
            for part in self.graph.parts(tuple).filter(|&part| !running[part]) {
                self.pieces[self.home[id] as usize].bytes += self.graph.nodes[part].bytes;
                tuples.push(part);
            }
        }
    }

    /// A result of an op of several is there from when the op runs, also if it is itself a list of results.
    fn part(&mut self, id: usize) {
        let node = &self.graph.nodes[id];
        if let (Some(op), None) = (node.part_of, node.view_of) {
            self.ran[id] = self.ran[op as usize];
            self.pieces[self.home[id] as usize].from = self.ran[id];
        }
    }

    /// Goes from the forward pass to the backward pass: nodes made there have pieces of their own.
    fn turn(&mut self, phases: &Phases, recomputed: &[bool], moment: usize) {
        self.hold(|node| node.forward_output);
        for (id, &recomputed) in recomputed.iter().enumerate() {
            if recomputed || !phases.forward[id] {
                self.home[id] = match self.graph.nodes[id].view_of {
                    Some(base) => self.home[base as usize],
                    None => (self.graph.len() + id) as u32,
                };
            }
            if self.graph.nodes[id].tangent {
                self.make(id, moment as u32);
                self.touch(id, self.end);
            }
        }
    }

    /// Has values stay to the end.
    fn hold(&mut self, stays: impl Fn(&Properties) -> bool) {
        for id in (0..self.graph.len()).filter(|&id| stays(&self.graph.nodes[id])) {
            self.touch(id, self.end);
        }
    }

    /// Bytes at each moment.
    fn bytes(&self) -> Vec<u64> {
        let mut change = vec![0u64; self.end as usize + 2];
        for piece in self.pieces.iter().filter(|piece| piece.from <= piece.to) {
            let (from, after) = (piece.from as usize, piece.to as usize + 1);
            change[from] = change[from].wrapping_add(piece.bytes);
            change[after] = change[after].wrapping_sub(piece.bytes);
        }
        let mut there = 0u64;
        change.pop();
        for (change, workspace) in change.iter_mut().zip(&self.workspace) {
            there = there.wrapping_add(*change);
            *change = there + workspace;
        }
        change
    }
}
