//! Evicted components: a union-find whose sets carry their cost (DTR appendix C.2, "relaxed evicted neighbourhood").
//!
//! Union by size, no path compression: every change has a one-word inverse, which the undo journal needs. A set loses a
//! member by subtracting its own cost; the node stays behind as a placeholder until nothing hangs on it.

use crate::dedup::push_deduplicated;
use crate::graph::NONE;

#[derive(Debug)]
struct Node {
    parent: u32,
    /// Nodes in the tree below and including this one.
    size: u32,
    /// Storages and child nodes that point here.
    pointers: u32,
    /// Of a root: the summed cost of its evicted members. Wraps; signed, since `eq` subtracts what it never added.
    cost: i64,
    /// Storages whose cached score counted this set.
    watchers: Vec<u32>,
}

impl Node {
    /// Forgets the watchers, of whom there are mostly few: the room for many is given back.
    fn unwatch(&mut self) {
        self.watchers.clear();
        self.watchers.shrink_to(16);
    }
}

/// All sets. Nodes are dense and reused.
#[derive(Default)]
pub(crate) struct Components {
    nodes: Vec<Node>,
    free: Vec<u32>,
    /// Nodes that lost their last pointer while a plan may still be undone.
    orphans: Vec<u32>,
}

impl Components {
    /// A fresh set.
    pub(crate) fn make(&mut self, cost: i64) -> u32 {
        if let Some(node) = self.free.pop() {
            let slot = &mut self.nodes[node as usize];
            slot.parent = NONE;
            slot.size = 1;
            slot.pointers = 0;
            slot.cost = cost;
            return node;
        }
        self.nodes.push(Node {
            parent: NONE,
            size: 1,
            pointers: 0,
            cost,
            watchers: Vec::new(),
        });
        (self.nodes.len() - 1) as u32
    }

    /// Undoes the latest [`make`](Self::make).
    pub(crate) fn unmake(&mut self, node: u32) {
        let slot = &mut self.nodes[node as usize];
        slot.size = 0;
        slot.unwatch();
        self.free.push(node);
    }

    pub(crate) fn root(&self, mut node: u32) -> u32 {
        loop {
            let parent = self.nodes[node as usize].parent;
            if parent == NONE {
                return node;
            }
            node = parent;
        }
    }

    pub(crate) fn cost(&self, root: u32) -> i64 {
        self.nodes[root as usize].cost
    }

    pub(crate) fn add_cost(&mut self, root: u32, delta: i64) {
        let cost = &mut self.nodes[root as usize].cost;
        *cost = cost.wrapping_add(delta);
    }

    /// Joins two sets given by their roots, whose watchers were told; returns the root that was hung under the other,
    /// if they were two.
    pub(crate) fn join(&mut self, a: u32, b: u32) -> Option<u32> {
        if a == b {
            return None;
        }
        let (top, child) = if self.nodes[a as usize].size >= self.nodes[b as usize].size {
            (a, b)
        } else {
            (b, a)
        };
        let (size, cost) = (
            self.nodes[child as usize].size,
            self.nodes[child as usize].cost,
        );
        self.nodes[child as usize].parent = top;
        self.nodes[child as usize].unwatch();
        let top = &mut self.nodes[top as usize];
        top.size = top.size.saturating_add(size);
        top.cost = top.cost.wrapping_add(cost);
        top.pointers += 1;
        Some(child)
    }

    /// Undoes the latest [`join`](Self::join).
    pub(crate) fn unjoin(&mut self, child: u32) {
        let top = self.nodes[child as usize].parent;
        let (size, cost) = (
            self.nodes[child as usize].size,
            self.nodes[child as usize].cost,
        );
        self.nodes[child as usize].parent = NONE;
        let top = &mut self.nodes[top as usize];
        top.size -= size;
        top.cost = top.cost.wrapping_sub(cost);
        top.pointers -= 1;
    }

    pub(crate) fn point(&mut self, node: u32) {
        self.nodes[node as usize].pointers += 1;
    }

    /// Takes a pointer away; a node without any is freed by the next [`sweep`](Self::sweep).
    pub(crate) fn unpoint(&mut self, node: u32) {
        let slot = &mut self.nodes[node as usize];
        slot.pointers -= 1;
        if slot.pointers == 0 {
            self.orphans.push(node);
        }
    }

    /// Frees what nothing points to. Not while a plan may still be undone.
    pub(crate) fn sweep(&mut self) {
        while let Some(node) = self.orphans.pop() {
            let slot = &mut self.nodes[node as usize];
            if slot.pointers > 0 || slot.size == 0 {
                continue;
            }
            // Size 0 marks a freed node, so that one orphaned twice is freed once.
            slot.size = 0;
            slot.unwatch();
            let parent = std::mem::replace(&mut slot.parent, NONE);
            self.free.push(node);
            if parent != NONE {
                self.unpoint(parent);
            }
        }
    }

    /// The storage's score counts the set: it is voided when the set changes.
    pub(crate) fn watch(&mut self, root: u32, storage: u32) {
        push_deduplicated(&mut self.nodes[root as usize].watchers, storage);
    }

    /// Hands over the watchers of a set that changed.
    pub(crate) fn take_watchers(&mut self, root: u32, into: &mut Vec<u32>) {
        into.append(&mut self.nodes[root as usize].watchers);
    }

    /// Nodes in use.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.nodes.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joined_sets_cost_their_sum_and_unjoin_restores_both() {
        let mut sets = Components::default();
        let (a, b, c) = (sets.make(1), sets.make(10), sets.make(100));
        let first = sets.join(a, b);
        assert_eq!(first, Some(b));
        let second = sets.join(sets.root(b), c);
        assert_eq!(second, Some(c));
        assert_eq!(sets.cost(sets.root(c)), 111);
        assert_eq!(sets.join(sets.root(a), sets.root(c)), None);
        sets.unjoin(c);
        sets.unjoin(b);
        assert_eq!(
            [a, b, c].map(|node| (sets.root(node), sets.cost(node))),
            [(a, 1), (b, 10), (c, 100)]
        );
    }

    #[test]
    fn a_placeholder_node_lives_as_long_as_a_child_hangs_on_it() {
        let mut sets = Components::default();
        let (a, b) = (sets.make(1), sets.make(2));
        sets.point(a);
        sets.point(b);
        sets.join(a, b);
        sets.unpoint(a);
        sets.sweep();
        assert_eq!(sets.len(), 2);
        sets.unpoint(b);
        sets.sweep();
        assert_eq!(sets.len(), 0);
    }
}
