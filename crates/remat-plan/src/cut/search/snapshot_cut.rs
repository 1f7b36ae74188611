//! What is in memory at one moment of the backward pass, at a price: a lower bound on the time of all plans, by a minimum cut.
//!
//! What the backward pass needs from this moment on is in memory then, or it is recomputed from what is. So at each moment, the values in
//! memory part those that are needed from the inputs, be they saved or recomputed before; what is recomputed from then on takes its time. Views
//! are as good as what they are views of, and what is there in any case is free.

use crate::cut::error::CutError;
use crate::cut::evaluate::choice::Question;
use crate::cut::flow::min_cut::{min_cut, NoMinCut};
use crate::cut::flow::network::{Capacity, Network};
use crate::cut::search::lagrangian::{certain_ns, Moment, SUM};

/// What sums of doubles may be off by.
const SLACK: f64 = 1e-9;

/// The values of the forward pass that may or may not be in memory at a moment, as a network to cut.
pub(crate) struct Relaxation<'a> {
    question: &'a Question<'a>,
    moment: &'a Moment,
    /// Nodes with memory of their own; the k-th has vertices `2 + 2k` and `3 + 2k`.
    nodes: Vec<u32>,
    /// Edges between them and to the sink, none of which is to be cut.
    reads: Vec<(u32, u32)>,
}

/// The cheapest of what may be in memory.
pub(crate) struct Relaxed {
    /// No plan takes less nanoseconds and price together.
    pub(crate) least: f64,
    /// Bytes in memory beside those that are there whatever is saved.
    pub(crate) held: u64,
}

impl<'a> Relaxation<'a> {
    /// `root` is the node whose memory each is in.
    pub(crate) fn new(
        question: &'a Question<'a>,
        moment: &'a Moment,
        root: &[u32],
    ) -> Relaxation<'a> {
        let graph = question.graph;
        let in_doubt = |id: usize| {
            let own = root[id] as usize;
            question.phases.forward[id] && question.phases.forward[own] && !moment.there[own]
        };
        let mut vertex = vec![0u32; graph.len()];
        let mut nodes = Vec::new();
        for id in (0..graph.len()).filter(|&id| in_doubt(id)) {
            if root[id] as usize == id {
                vertex[id] = 2 + 2 * nodes.len() as u32;
                nodes.push(id as u32);
            }
            vertex[id] = vertex[root[id] as usize];
        }
        let mut reads = Vec::new();
        for id in (0..graph.len()).filter(|&id| in_doubt(id)) {
            let out = vertex[id] + 1;
            if moment.needed[id] {
                reads.push((out, Network::SINK));
            }
            let users = graph.users.of(id).iter().map(|&user| user as usize);
            let made = users.filter(|&user| in_doubt(user) && graph.nodes[user].view_of.is_none());
            reads.extend(made.map(|user| (out, vertex[user])));
        }
        Relaxation {
            question,
            moment,
            nodes,
            reads,
        }
    }

    /// The cheapest where a byte costs so many nanoseconds.
    pub(crate) fn cheapest(&self, price: f64) -> Result<Relaxed, CutError> {
        let bytes = |id: usize| self.question.graph.nodes[id].bytes;
        let whole: f64 = (self.nodes.iter().map(|&id| id as usize))
            .map(|id| price * bytes(id) as f64 + certain_ns(self.question, id) as f64)
            .sum();
        let scale = SUM / whole.max(f64::MIN_POSITIVE);
        let finite = |value: f64| Capacity::Finite((value * scale) as u64);
        let mut network = Network::new(2 * self.nodes.len() as u32);
        for (k, id) in (0..).zip(self.nodes.iter().map(|&id| id as usize)) {
            let recompute = match self.question.fixed[id] {
                true => Capacity::Infinite,
                false => finite(certain_ns(self.question, id) as f64),
            };
            let keep = match self.is_split(id) {
                true => Capacity::Infinite,
                false => finite(price * bytes(id) as f64),
            };
            network.edge(Network::SOURCE, 2 + 2 * k, recompute);
            network.edge(2 + 2 * k, 3 + 2 * k, keep);
        }
        for &(tail, head) in &self.reads {
            network.edge(tail, head, Capacity::Infinite);
        }
        let cut = min_cut(&network).map_err(uncertified)?;
        let kept = |k: &usize| !cut.sink_side[2 + 2 * k] && cut.sink_side[3 + 2 * k];
        let kept = (0..self.nodes.len()).filter(kept);
        Ok(Relaxed {
            least: cut.cost as f64 / scale - whole * SLACK,
            held: kept.map(|k| bytes(self.nodes[k] as usize)).sum(),
        })
    }

    /// Bytes that there is room for beside what is there whatever is saved; `None` if that is too much.
    pub(crate) fn room(&self, budget: u64) -> Option<u64> {
        budget.checked_sub(self.moment.fixed)
    }

    /// It is an op of several results: these are in memory in its place.
    fn is_split(&self, id: usize) -> bool {
        let graph = self.question.graph;
        let users = graph.users.of(id);
        let part = |&user: &u32| {
            let user = &graph.nodes[user as usize];
            user.part_of == Some(id as u32) && user.view_of.is_none()
        };
        !graph.nodes[id].savable && !users.is_empty() && users.iter().all(part)
    }
}

fn uncertified(error: NoMinCut) -> CutError {
    CutError::Uncertified(format!("no bound: {error:?}"))
}
