//! Bans that follow from which ops fuse ([`FusionRules`]): a chain of cheap ops through the whole model, such as that
//! of residual connections, is cheap at each op and dear as a whole.
//!
//! The rules are those of PyTorch's partitioner, in its order. They look at the ops that the forward pass runs for
//! its outputs, in the order of the description. An op that may not be recomputed for another reason of the caller is
//! banned already.

use crate::cut::graph::ban::Ban;
use crate::cut::graph::description::FusionRules;
use crate::cut::graph::joint_graph::JointGraph;
use crate::cut::graph::phases::forward_ancestors;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

/// Ops of a chain between two that are banned.
const LONGEST_CHAIN: u32 = 100;

/// Facts about a node that only these rules read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    /// Its place in the description.
    pub(crate) position: u32,
    pub(crate) forward: Option<bool>,
    pub(crate) free: bool,
    pub(crate) fuses_as_reader: bool,
}

/// The ban of each node by the rules that are on. Facts are by number of node.
pub(crate) fn fusion_bans(
    graph: &JointGraph,
    rules: FusionRules,
    facts: &[Facts],
) -> Vec<Option<Ban>> {
    let mut bans = FusionBans::new(graph, facts);
    if rules.materialized_backward {
        bans.materialized_backward();
    }
    if rules.used_far_apart {
        bans.used_far_apart();
    }
    if rules.long_fusible_chains {
        bans.long_fusible_chains();
    }
    bans.found
}

struct FusionBans<'a> {
    graph: &'a JointGraph,
    facts: &'a [Facts],
    /// The place of each node among those of the forward pass; `None` for the others.
    place: Vec<Option<u32>>,
    /// The nodes of the forward pass, in the order of the description.
    forward: Vec<usize>,
    found: Vec<Option<Ban>>,
}

impl<'a> FusionBans<'a> {
    fn new(graph: &'a JointGraph, facts: &'a [Facts]) -> FusionBans<'a> {
        let runs = forward_ancestors(graph);
        let known = |&id: &usize| facts[id].forward.unwrap_or(runs[id]);
        let mut forward: Vec<usize> = (0..graph.len()).filter(known).collect();
        forward.sort_by_key(|&id| facts[id].position);
        let mut place = vec![None; graph.len()];
        for (order, &id) in (0..).zip(&forward) {
            place[id] = Some(order);
        }
        FusionBans {
            graph,
            facts,
            place,
            forward,
            found: vec![None; graph.len()],
        }
    }

    fn users(&self, id: usize) -> impl Iterator<Item = usize> + '_ {
        self.graph.users.of(id).iter().map(|&user| user as usize)
    }

    /// The places of the ops of the forward pass that read a value.
    fn forward_users(&self, id: usize) -> impl Iterator<Item = u32> + '_ {
        self.users(id).filter_map(|user| self.place[user])
    }

    fn node(&self, place: u32) -> usize {
        self.forward[place as usize]
    }

    /// The two can be one kernel.
    fn fuses(&self, id: usize, user: usize) -> bool {
        let nodes = &self.graph.nodes;
        self.facts[user].fuses_as_reader || (nodes[id].fusible && nodes[user].fusible)
    }

    fn is_banned(&self, id: usize) -> bool {
        self.found[id].is_some() || !self.graph.nodes[id].recomputable
    }

    /// It is not banned yet, and an op of the forward pass that takes some time.
    fn can_be_banned(&self, id: usize) -> bool {
        let exempt = self.facts[id].free || self.graph.nodes[id].input;
        self.place[id].is_some() && !exempt && !self.is_banned(id)
    }

    fn ban(&mut self, id: usize, ban: Ban) {
        if self.can_be_banned(id) {
            self.found[id] = Some(ban);
        }
    }

    fn materialized_backward(&mut self) {
        for id in 0..self.graph.len() {
            if self.can_be_banned(id) && self.is_read_unfused(id) {
                self.ban(id, Ban::Unfusible);
            }
        }
    }

    /// An op outside of the forward pass that cannot be one kernel with it reads it, or a view of it (lemma 3.1).
    fn is_read_unfused(&self, id: usize) -> bool {
        let (mut waiting, mut seen) = (vec![id], BTreeSet::from([id]));
        while let Some(now) = waiting.pop() {
            for user in self.users(now) {
                if self.place[user].is_none() && !self.fuses(now, user) {
                    return true;
                }
                if self.is_view(user) && seen.insert(user) {
                    waiting.push(user);
                }
            }
        }
        false
    }

    /// It is a view, and no item of one that is several.
    fn is_view(&self, id: usize) -> bool {
        let node = &self.graph.nodes[id];
        node.view_of.is_some() && node.part_of.is_none()
    }

    fn used_far_apart(&mut self) {
        for order in 0..self.forward.len() as u32 {
            let id = self.node(order);
            let users: Vec<u32> = self.forward_users(id).collect();
            let Some(&last) = users.iter().max() else {
                continue;
            };
            let first = self.first_unfused(&users, last);
            for user in users.into_iter().filter(|&user| user > first) {
                if self.fuses(id, self.node(user)) {
                    self.ban(self.node(user), Ban::UsedFarApart);
                }
            }
        }
    }

    /// The place of the first op, up to `last`, that is reached from `start` and cannot be fused with what it reads.
    fn first_unfused(&self, start: &[u32], last: u32) -> u32 {
        let start = start.iter().map(|&place| (place, true));
        let mut seen: BTreeSet<(u32, bool)> = start.collect();
        let mut waiting = BinaryHeap::from_iter(seen.iter().copied().map(Reverse));
        while let Some(Reverse((place, fused))) = waiting.pop() {
            if !fused {
                return place;
            }
            let id = self.node(place);
            for user in self.forward_users(id).filter(|&user| user <= last) {
                let reached = (user, self.fuses(id, self.node(user)));
                if seen.insert(reached) {
                    waiting.push(Reverse(reached));
                }
            }
        }
        last
    }

    fn long_fusible_chains(&mut self) {
        let mut visited = vec![false; self.forward.len()];
        for start in 0..self.forward.len() as u32 {
            let mut waiting = BinaryHeap::from([Reverse(start)]);
            while let Some(Reverse(place)) = waiting.pop() {
                if std::mem::replace(&mut visited[place as usize], true) {
                    continue;
                }
                let id = self.node(place);
                if place > start + LONGEST_CHAIN && waiting.is_empty() {
                    self.ban(id, Ban::LongChain);
                    break;
                }
                for user in self.forward_users(id) {
                    let next = self.node(user);
                    if !self.is_banned(next) && self.fuses(id, next) {
                        waiting.push(Reverse(user));
                    }
                }
            }
        }
    }
}
