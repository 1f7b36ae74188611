//! A lower bound on the time of all plans: the cheapest memory of one moment of the backward pass, at a price, by a
//! minimum cut.
//!
//! A value that the backward pass needs from this moment on is in memory then, or is recomputed from values that are.
//! So the values in memory part the needed values from the inputs, be they saved or recomputed before, and the values
//! recomputed from then on take their time. Views are as good as their bases, and memory that is taken in any case is
//! free.

use crate::cut::error::CutError;
use crate::cut::evaluate::choice::Problem;
use crate::cut::search::lagrangian::{SUM, certain_ns};
use crate::cut::search::snapshot::Snapshot;
use crate::flow::min_cut::{NoMinCut, min_cut};
use crate::flow::network::{Capacity, Network};

/// The error of sums of doubles.
const SLACK: f64 = 1e-9;

/// The values of the forward pass that may or may not be in memory at a snapshot, as a network to cut.
pub(crate) struct SnapshotCut<'a> {
    problem: &'a Problem<'a>,
    snapshot: &'a Snapshot,
    /// Nodes with memory of their own; the k-th has vertices `2 + 2k` and `3 + 2k`.
    nodes: Vec<u32>,
    /// Edges between them and to the sink, none of which must be cut.
    reads: Vec<(u32, u32)>,
}

/// The cheapest choice of values in memory at a price.
pub(crate) struct PricedCut {
    /// A lower bound on the sum of the nanoseconds and the price of a plan.
    pub(crate) least: f64,
    /// Bytes in memory beside those that are there whatever is saved.
    pub(crate) held: u64,
}

impl<'a> SnapshotCut<'a> {
    /// `root` is the node whose memory each node is in.
    pub(crate) fn new(
        problem: &'a Problem<'a>,
        snapshot: &'a Snapshot,
        root: &[u32],
    ) -> SnapshotCut<'a> {
        let graph = problem.graph;
        let in_doubt = |id: usize| {
            let own = root[id] as usize;
            problem.phases.forward[id] && problem.phases.forward[own] && !snapshot.there[own]
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
            if snapshot.needed[id] {
                reads.push((out, Network::SINK));
            }
            let users = graph.users.of(id).iter().map(|&user| user as usize);
            let made = users.filter(|&user| in_doubt(user) && graph.nodes[user].view_of.is_none());
            reads.extend(made.map(|user| (out, vertex[user])));
        }
        SnapshotCut {
            problem,
            snapshot,
            nodes,
            reads,
        }
    }

    /// The cheapest choice where a byte costs so many nanoseconds.
    pub(crate) fn cheapest(&self, price: f64) -> Result<PricedCut, CutError> {
        let bytes = |id: usize| self.problem.graph.nodes[id].bytes;
        let whole: f64 = (self.nodes.iter().map(|&id| id as usize))
            .map(|id| price * bytes(id) as f64 + certain_ns(self.problem, id) as f64)
            .sum();
        let scale = SUM / whole.max(f64::MIN_POSITIVE);
        let finite = |value: f64| Capacity::Finite((value * scale) as u64);
        let mut network = Network::new(2 * self.nodes.len() as u32);
        for (k, id) in (0..).zip(self.nodes.iter().map(|&id| id as usize)) {
            let recompute = if self.problem.fixed[id] {
                Capacity::Infinite
            } else {
                finite(certain_ns(self.problem, id) as f64)
            };
            let keep = if self.is_split(id) {
                Capacity::Infinite
            } else {
                finite(price * bytes(id) as f64)
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
        Ok(PricedCut {
            least: cut.cost as f64 / scale - whole * SLACK,
            held: kept.map(|k| bytes(self.nodes[k] as usize)).sum(),
        })
    }

    /// Bytes of the budget beside those that are there whatever is saved; `None` if the latter exceed it.
    pub(crate) fn room(&self, budget: u64) -> Option<u64> {
        budget.checked_sub(self.snapshot.fixed)
    }

    /// The node is an op of several results, which are in memory in its place.
    fn is_split(&self, id: usize) -> bool {
        let graph = self.problem.graph;
        let users = graph.users.of(id).len();
        users > 0 && graph.parts(id).count() == users
    }
}

fn uncertified(error: NoMinCut) -> CutError {
    CutError::Uncertified(format!("no bound: {error:?}"))
}
