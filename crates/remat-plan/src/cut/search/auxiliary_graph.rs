//! The auxiliary graph of algorithm 1 of the paper: a minimum cut of it is a choice of the values to save.

use crate::cut::error::CutError;
use crate::cut::evaluate::choice::Problem;
use crate::cut::graph::ban::Ban;
use crate::cut::graph::ban_rules::Nearest;
use crate::flow::min_cut::{NoMinCut, min_cut, min_cut_nearest_source};
use crate::flow::network::{Capacity, Network};

/// The cost of saving a node and of recomputing it.
pub(crate) struct Weights {
    /// The edge from its in-vertex to its out-vertex.
    pub(crate) save: Capacity,
    /// The edge from the source to its in-vertex: infinite in the paper where recomputing is banned.
    pub(crate) recompute: Capacity,
}

/// The auxiliary graph `G'`: every node of `V_f` is an edge, from its in-vertex to its out-vertex.
pub(crate) struct AuxiliaryGraph<'a> {
    problem: &'a Problem<'a>,
    network: Network,
    /// The nodes of `V_f`; the k-th has vertices `2 + 2k` and `3 + 2k`.
    nodes: Vec<u32>,
}

impl<'a> AuxiliaryGraph<'a> {
    pub(crate) fn new(
        problem: &'a Problem<'a>,
        weights: impl Fn(usize) -> Weights,
    ) -> AuxiliaryGraph<'a> {
        let (graph, phases) = (problem.graph, &problem.phases);
        let ids = 0..graph.len() as u32;
        let nodes: Vec<u32> = ids.filter(|&id| phases.forward[id as usize]).collect();
        let mut place = vec![0; graph.len()];
        for (k, &id) in (0..).zip(&nodes) {
            place[id as usize] = 2 + 2 * k;
        }
        let mut network = Network::new(2 * nodes.len() as u32);
        for &id in &nodes {
            let (id, into) = (id as usize, place[id as usize]);
            let out = into + 1;
            let weights = weights(id);
            if weights.recompute != Capacity::Finite(0) {
                network.edge(Network::SOURCE, into, weights.recompute);
            }
            network.edge(into, out, weights.save);
            for &user in graph.users.of(id) {
                if phases.forward[user as usize] {
                    network.edge(out, place[user as usize], Capacity::Infinite);
                }
            }
            if phases.needed[id] {
                network.edge(out, Network::SINK, Capacity::Infinite);
            }
        }
        AuxiliaryGraph {
            problem,
            network,
            nodes,
        }
    }

    /// For each node whether the minimum cut saves it, and the cost of the cut, edges from the source included.
    pub(crate) fn saved(&self, nearest: Nearest) -> Result<(Vec<bool>, u64), CutError> {
        let cut = match nearest {
            Nearest::Backward => min_cut(&self.network),
            Nearest::Forward => min_cut_nearest_source(&self.network),
        };
        let cut = cut.map_err(|error| self.refusal(error))?;
        let mut saved = vec![false; self.problem.graph.len()];
        for (k, &id) in self.nodes.iter().enumerate() {
            let vertex = 2 + 2 * k;
            saved[id as usize] = !cut.sink_side[vertex] && cut.sink_side[vertex + 1];
        }
        Ok((saved, cut.cost))
    }

    fn refusal(&self, error: NoMinCut) -> CutError {
        match error {
            NoMinCut::Endless(edges) => self.endless(&edges),
            NoMinCut::TooLarge(sum) => CutError::Uncertified(format!("capacities add up to {sum}")),
            NoMinCut::Uncertified(reason) => CutError::Uncertified(reason),
        }
    }

    /// The refusal that names the nodes of a path of infinite edges.
    fn endless(&self, edges: &[usize]) -> CutError {
        let head = |&edge: &usize| self.network.edges[edge].head;
        let vertices = edges.iter().map(head);
        let entered = vertices.filter(|vertex| *vertex >= 2 && vertex % 2 == 0);
        let path: Vec<u32> = entered
            .map(|vertex| self.nodes[vertex as usize / 2 - 1])
            .collect();
        let (first, last) = (path[0] as usize, path[path.len() - 1]);
        let backward = |user: &&u32| !self.nodes.contains(user);
        let mut users = self.problem.graph.users.of(last as usize).iter();
        let needed_by = *users.find(backward).unwrap_or(&last);
        CutError::NoCut {
            banned: self.problem.graph.names[first].clone(),
            reason: self.problem.bans[first].map_or("input", Ban::name),
            needed_by: self.problem.graph.names[needed_by as usize].clone(),
            path: self.problem.graph.names_of(&path),
        }
    }
}
