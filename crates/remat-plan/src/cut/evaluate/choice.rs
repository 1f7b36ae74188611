//! A choice of the values to save, with its cost, time and memory.

use crate::cut::error::CutError;
use crate::cut::evaluate::capacity::capacity;
use crate::cut::evaluate::recompute::Recompute;
use crate::cut::evaluate::timeline::Timeline;
use crate::cut::graph::ban::Ban;
use crate::cut::graph::ban_rules::{Wishes, bans, lasting_ban};
use crate::cut::graph::joint_graph::JointGraph;
use crate::cut::graph::phases::{Phases, forward_ancestors};
use crate::flow::network::Capacity;

/// A joint graph with everything that is known before anything is chosen.
pub(crate) struct Problem<'a> {
    pub(crate) graph: &'a JointGraph,
    pub(crate) phases: Phases,
    /// Bans of the rules, with those that the caller added or lifted.
    pub(crate) bans: Vec<Option<Ban>>,
    /// Bans of the rules alone.
    pub(crate) rules: Vec<Option<Ban>>,
    pub(crate) capacities: Vec<Capacity>,
    /// No plan recomputes the node, whatever the budget: it is an input, a random op, a node that the caller banned,
    /// or a result of such an op that is not savable itself.
    pub(crate) fixed: Vec<bool>,
    /// The forward pass runs the node, whatever is saved.
    pub(crate) always_forward: Vec<bool>,
}

impl<'a> Problem<'a> {
    pub(crate) fn new(graph: &'a JointGraph, wishes: &Wishes) -> Result<Problem<'a>, CutError> {
        let phases = Phases::of(graph);
        let rules = bans(graph, &phases.forward);
        let mut bans = rules.clone();
        wishes.apply(graph, &phases.forward, &mut bans)?;
        Ok(Problem {
            capacities: (0..graph.len()).map(|id| capacity(graph, id)).collect(),
            fixed: fixed(graph, &bans),
            always_forward: forward_ancestors(graph),
            graph,
            phases,
            bans,
            rules,
        })
    }

    /// The choice that saves these nodes, and the fixed nodes that the backward pass then reads. `None` if one of
    /// those is not savable.
    pub(crate) fn choice(&self, mut saved: Vec<bool>) -> Option<Choice> {
        let mut wanted = self.phases.needed.clone();
        let mut run = Recompute::default();
        for id in (0..wanted.len())
            .rev()
            .filter(|&id| self.phases.forward[id])
        {
            saved[id] = wanted[id] && (saved[id] || self.fixed[id]);
            if saved[id] {
                if self.capacities[id] == Capacity::Infinite {
                    return None;
                }
                run.read.push(id as u32);
            } else if wanted[id] {
                run.recomputed.push(id as u32);
                for &read in self.graph.inputs.of(id) {
                    wanted[read as usize] = true;
                }
            }
        }
        run.read.reverse();
        run.recomputed.reverse();
        let timeline = self.timeline(&run);
        let banned = run
            .recomputed
            .iter()
            .filter(|&&id| self.bans[id as usize].is_some());
        Some(Choice {
            lifted: banned.count(),
            cost: self.cost(&run),
            peak: timeline.peak(),
            recompute_ns: timeline.recompute_ns,
            run,
        })
    }

    /// The step as it runs with this choice.
    pub(crate) fn timeline(&self, run: &Recompute) -> Timeline {
        Timeline::of(self.graph, &self.phases, run)
    }

    fn cost(&self, run: &Recompute) -> u64 {
        let cost = |&id: &u32| match self.capacities[id as usize] {
            Capacity::Finite(capacity) => capacity,
            Capacity::Infinite => 0,
        };
        run.read.iter().map(cost).sum()
    }
}

fn fixed(graph: &JointGraph, bans: &[Option<Ban>]) -> Vec<bool> {
    let mut fixed = vec![false; graph.len()];
    for id in 0..graph.len() {
        let lost = |&read: &u32| fixed[read as usize] && !graph.nodes[read as usize].savable;
        fixed[id] = graph.nodes[id].input
            || bans[id] == Some(Ban::Caller)
            || (bans[id].is_some() && lasting_ban(&graph.nodes[id]).is_some())
            || graph.inputs.of(id).iter().any(lost);
    }
    fixed
}

/// A valid choice.
#[derive(Clone)]
pub(crate) struct Choice {
    pub(crate) run: Recompute,
    /// Sum of the capacities of the saved nodes.
    pub(crate) cost: u64,
    /// The most bytes of the step at once.
    pub(crate) peak: u64,
    pub(crate) recompute_ns: u64,
    /// Number of nodes that are recomputed in spite of a ban.
    pub(crate) lifted: usize,
}

impl Choice {
    /// Ranks choices of the same memory: by time, then by bans lifted, then by bytes read and written.
    pub(crate) fn price(&self) -> (u64, usize, u64) {
        (self.recompute_ns, self.lifted, self.cost)
    }
}
