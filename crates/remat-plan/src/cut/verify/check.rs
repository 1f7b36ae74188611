//! Validity of a plan, and the nodes that each pass runs.

use crate::cut::error::Short;
use crate::cut::graph::joint_graph::JointGraph;
use crate::cut::verify::claim::{Claim, Fault, fault};

/// The pass that a node belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// The forward pass is given it.
    Input,
    /// It can be made without tangents.
    Forward,
    /// It needs a tangent, or is one.
    Backward,
}

pub(crate) struct Check<'a> {
    pub(crate) graph: &'a JointGraph,
    pub(crate) place: Vec<Place>,
    pub(crate) saved: Vec<bool>,
    pub(crate) lifted: Vec<bool>,
    /// An output of the backward pass is computed from it by ops that the backward pass runs.
    pub(crate) useful: Vec<bool>,
}

impl<'a> Check<'a> {
    pub(crate) fn new(graph: &'a JointGraph, claim: &Claim) -> Result<Check<'a>, Fault> {
        let mut place = Vec::with_capacity(graph.len());
        for (id, node) in graph.nodes.iter().enumerate() {
            let tainted = |&read: &u32| place[read as usize] == Place::Backward;
            place.push(if node.tangent || graph.inputs.of(id).iter().any(tainted) {
                Place::Backward
            } else if node.input {
                Place::Input
            } else {
                Place::Forward
            });
        }
        let mut check = Check {
            graph,
            place,
            saved: marked(graph, "saved", &claim.saved)?,
            lifted: marked(graph, "lifted", &claim.lifted)?,
            useful: vec![false; graph.len()],
        };
        check.follow()?;
        Ok(check)
    }

    /// Follows the backward pass from its outputs to the values that it is handed.
    fn follow(&mut self) -> Result<(), Fault> {
        let graph = self.graph;
        for id in (0..graph.len()).rev() {
            let node = &graph.nodes[id];
            if self.saved[id] {
                self.can_be_saved(id)?;
            }
            self.useful[id] |= node.backward_output;
            if !self.useful[id] || self.saved[id] {
                continue;
            }
            if self.place[id] == Place::Input {
                return fault(format!(
                    "the backward pass needs {}, an input that is not saved",
                    self.name(id)
                ));
            }
            for &read in graph.inputs.of(id) {
                self.useful[read as usize] = true;
            }
        }
        let idle = (0..graph.len()).find(|&id| self.saved[id] && !self.useful[id]);
        match idle {
            Some(id) => fault(format!("{} is saved and nothing reads it", self.name(id))),
            None => Ok(()),
        }
    }

    fn can_be_saved(&self, id: usize) -> Result<(), Fault> {
        if self.place[id] == Place::Backward {
            return fault(format!(
                "{} is saved, but comes of a tangent",
                self.name(id)
            ));
        }
        if self.graph.nodes[id].savable {
            Ok(())
        } else {
            fault(format!("{} is saved, but is not savable", self.name(id)))
        }
    }

    fn name(&self, id: usize) -> Short<'a> {
        Short(&self.graph.names[id])
    }

    /// The backward pass runs it although the forward pass could.
    pub(crate) fn again(&self, id: usize) -> bool {
        self.useful[id] && !self.saved[id] && self.place[id] == Place::Forward
    }

    /// The backward pass runs it.
    pub(crate) fn late(&self, id: usize) -> bool {
        let op = self.place[id] == Place::Backward && !self.graph.nodes[id].tangent;
        self.again(id) || (op && self.useful[id])
    }

    pub(crate) fn users(&self, id: usize) -> impl Iterator<Item = usize> + '_ {
        self.graph.users.of(id).iter().map(|&user| user as usize)
    }

    /// Checks that no banned node is recomputed, but for lifted ones.
    pub(crate) fn bans(&self) -> Result<(), Fault> {
        for id in (0..self.graph.len()).filter(|&id| self.again(id)) {
            let node = &self.graph.nodes[id];
            if node.random {
                return fault(format!("{} is random and is recomputed", self.name(id)));
            }
            if !node.recomputable {
                return fault(format!(
                    "{} is recomputed, which the graph forbids",
                    self.name(id)
                ));
            }
            match self.ban(id) {
                Some(reason) if !self.lifted[id] => {
                    return fault(format!(
                        "{} is recomputed, which is banned: {reason}",
                        self.name(id)
                    ));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn ban(&self, id: usize) -> Option<&'static str> {
        let node = &self.graph.nodes[id];
        let read: u128 = (self.graph.inputs.of(id).iter())
            .map(|&read| u128::from(self.graph.nodes[read as usize].bytes))
            .sum();
        let apart = |user: usize| !(node.fusible && self.graph.nodes[user].fusible);
        if node.compute_bound {
            return Some("it is compute-bound");
        }
        if node.reduction && u128::from(node.bytes) * 4 < read {
            return Some("it is a reduction to less than a quarter");
        }
        let mut late = self
            .users(id)
            .filter(|&user| self.place[user] == Place::Backward);
        late.any(apart)
            .then_some("an op of the backward pass that it does not fuse with reads it")
    }

    pub(crate) fn capacity(&self, id: usize) -> u64 {
        let node = &self.graph.nodes[id];
        let stays_in_kernels =
            node.fusible && self.users(id).all(|user| self.graph.nodes[user].fusible);
        let written = node.input || node.forward_output || !stays_in_kernels;
        node.bytes * if written { 1 } else { 2 }
    }

    /// It is not compute-bound, and all its readers in the backward pass are in a kernel with it.
    pub(crate) fn free(&self, id: usize) -> bool {
        let mut readers = self.users(id).filter(|&user| self.late(user));
        let node = &self.graph.nodes[id];
        node.fusible && !node.compute_bound && readers.all(|user| self.graph.nodes[user].fusible)
    }

    /// Whether the forward pass runs each node.
    pub(crate) fn early(&self) -> Vec<bool> {
        let mut early = vec![false; self.graph.len()];
        for id in (0..self.graph.len()).rev() {
            let wanted = self.saved[id] || self.graph.nodes[id].forward_output;
            early[id] = self.place[id] == Place::Forward
                && (wanted || self.users(id).any(|user| early[user]));
        }
        early
    }

    /// The nodes that the backward pass runs, in order: each op of its own, and before it the nodes recomputed for it.
    pub(crate) fn order(&self) -> Vec<usize> {
        let mut due = vec![usize::MAX; self.graph.len()];
        let mut late: Vec<usize> = (0..self.graph.len()).filter(|&id| self.late(id)).collect();
        for &id in late.iter().rev() {
            due[id] = match self.place[id] {
                Place::Backward => id,
                _ => self
                    .users(id)
                    .filter(|&user| self.late(user))
                    .map(|user| due[user])
                    .min()
                    .unwrap_or(usize::MAX),
            };
        }
        late.sort_by_key(|&id| (due[id], self.place[id] == Place::Backward, id));
        late
    }

    /// Results of an op of several results that have memory of their own.
    pub(crate) fn parts(&self, id: usize) -> impl Iterator<Item = usize> + '_ {
        self.users(id).filter(move |&user| {
            let node = &self.graph.nodes[user];
            node.part_of == Some(id as u32) && node.view_of.is_none()
        })
    }
}

fn marked(graph: &JointGraph, list: &str, names: &[String]) -> Result<Vec<bool>, Fault> {
    let mut marked = vec![false; graph.len()];
    let ids = graph
        .find(names)
        .map_err(|name| Fault(format!("{list} names {}, which is no node", Short(name))))?;
    for (id, name) in ids.into_iter().zip(names) {
        if std::mem::replace(&mut marked[id as usize], true) {
            return fault(format!("{list} names {} twice", Short(name)));
        }
    }
    Ok(marked)
}
