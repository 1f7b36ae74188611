//! Which component each evicted storage belongs to (DTR appendix C.2, "relaxed evicted neighbourhood").

use super::scores::Eviction;
use crate::graph::{Graph, NONE};
use crate::ids::StorageId;
use crate::journal::{Entry, Journal};

impl Eviction {
    /// A new set at the storage's cost, merged with those of its evicted neighbours.
    pub(crate) fn join_component(
        &mut self,
        graph: &mut Graph,
        journal: &mut Journal,
        s: StorageId,
    ) {
        let cost = graph[s].cost as i64;
        self.set_node(graph, journal, s, NONE);
        let mut root = self.make_node(graph, journal, s, cost);
        let mut around = std::mem::take(&mut self.around);
        graph.neighbours(s, &mut around);
        for &neighbour in &around {
            if graph[neighbour].resident {
                self.candidates.void(graph, neighbour);
                continue;
            }
            let node = match graph[neighbour].node {
                NONE => self.announce_node(graph, journal, neighbour),
                node => node,
            };
            let other = self.components.root(node);
            self.void_watchers(graph, other);
            self.void_watchers(graph, root);
            if let Some(child) = self.components.join(root, other) {
                journal.write(Entry::Joined(child));
                root = self.components.root(child);
            }
        }
        self.around = around;
    }

    /// A storage announced and not yet computed gets its empty set when it is first merged with.
    fn announce_node(&mut self, graph: &mut Graph, journal: &mut Journal, s: StorageId) -> u32 {
        let mut around = Vec::new();
        graph.neighbours(s, &mut around);
        for neighbour in around {
            self.candidates.void(graph, neighbour);
        }
        self.make_node(graph, journal, s, 0)
    }

    fn make_node(
        &mut self,
        graph: &mut Graph,
        journal: &mut Journal,
        s: StorageId,
        cost: i64,
    ) -> u32 {
        let node = self.components.make(cost);
        journal.write(Entry::NodeMade(node));
        self.set_node(graph, journal, s, node);
        node
    }

    fn set_node(&mut self, graph: &mut Graph, journal: &mut Journal, s: StorageId, node: u32) {
        let before = graph[s].node;
        if before != node {
            journal.write(Entry::Node(s, before));
            self.replace_node(graph, s, node);
        }
    }

    /// The storage's node is another from now on; undoes itself with the node before.
    pub(crate) fn replace_node(&mut self, graph: &mut Graph, s: StorageId, node: u32) {
        let before = std::mem::replace(&mut graph[s].node, node);
        if before != NONE {
            self.components.unpoint(before);
        }
        if node != NONE {
            self.components.point(node);
        }
    }

    /// Takes a storage out of its set, by its present cost (the splitting approximation).
    pub(crate) fn leave_component(
        &mut self,
        graph: &mut Graph,
        journal: &mut Journal,
        s: StorageId,
    ) {
        let (node, cost) = (graph[s].node, graph[s].cost as i64);
        if node != NONE {
            self.add_cost(graph, journal, node, cost.wrapping_neg());
            self.set_node(graph, journal, s, NONE);
        }
    }

    /// Changes the cost of the set of a node.
    pub(crate) fn add_cost(
        &mut self,
        graph: &mut Graph,
        journal: &mut Journal,
        node: u32,
        delta: i64,
    ) {
        let root = self.components.root(node);
        self.components.add_cost(root, delta);
        journal.write(Entry::ComponentCost(root, delta));
        self.void_watchers(graph, root);
    }

    fn void_watchers(&mut self, graph: &mut Graph, root: u32) {
        let mut watchers = std::mem::take(&mut self.watchers);
        self.components.take_watchers(root, &mut watchers);
        for watcher in watchers.drain(..) {
            self.candidates.void(graph, StorageId(watcher));
        }
        self.watchers = watchers;
    }
}
