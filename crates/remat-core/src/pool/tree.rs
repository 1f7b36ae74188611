//! An ordered tree over the slots of a table: a treap whose priorities are hashes of the keys, so that its shape
//! depends on the set of keys alone. Each slot has a weight; a subtree knows its largest. All operations take O(log n)
//! expected; none recurses, and none allocates once the table has its size.

use crate::random::mix;

/// No slot.
pub(crate) const NIL: u32 = u32::MAX;

/// Compared lexicographically; no two slots of a tree have the same.
pub(crate) type Key = (u64, u64);

#[derive(Clone, Copy, Debug)]
struct Node {
    key: Key,
    weight: u64,
    /// The largest weight at and below this node.
    largest: u64,
    priority: u64,
    parent: u32,
    /// Below: smaller keys, larger keys.
    child: [u32; 2],
}

/// Which end of the order.
#[derive(Clone, Copy)]
pub(crate) enum Branch {
    First = 0,
    Last = 1,
}

#[derive(Clone, Debug)]
pub(crate) struct Tree {
    /// By slot; those that are not in the tree hold what they held.
    nodes: Vec<Node>,
    root: u32,
}

impl Tree {
    pub(crate) fn new() -> Tree {
        Tree {
            nodes: Vec::new(),
            root: NIL,
        }
    }

    /// The largest weight of all, 0 if there is none.
    pub(crate) fn largest(&self) -> u64 {
        self.largest_below(self.root)
    }

    /// Adds a slot that is not in the tree.
    pub(crate) fn insert(&mut self, slot: u32, key: Key, weight: u64) {
        let node = Node {
            key,
            weight,
            largest: weight,
            priority: mix(key.0 ^ mix(key.1)),
            parent: NIL,
            child: [NIL; 2],
        };
        let index = slot as usize;
        if index >= self.nodes.len() {
            self.nodes.resize(index + 1, node);
        }
        self.nodes[index] = node;
        let (mut parent, mut next, mut side) = (NIL, self.root, 0);
        while next != NIL {
            parent = next;
            side = usize::from(key > self.nodes[next as usize].key);
            next = self.nodes[next as usize].child[side];
        }
        self.nodes[index].parent = parent;
        if parent == NIL {
            self.root = slot;
            return;
        }
        self.nodes[parent as usize].child[side] = slot;
        self.pull_up(parent);
        while self.nodes[index].parent != NIL && self.outranks(slot, self.nodes[index].parent) {
            self.rotate_up(slot);
        }
    }

    /// Takes a slot out that is in the tree.
    pub(crate) fn remove(&mut self, slot: u32) {
        loop {
            let [low, high] = self.nodes[slot as usize].child;
            match (low, high) {
                (NIL, NIL) => break,
                (NIL, child) | (child, NIL) => self.rotate_up(child),
                _ => self.rotate_up(if self.outranks(low, high) { low } else { high }),
            }
        }
        let parent = self.nodes[slot as usize].parent;
        self.relink(parent, slot, NIL);
        self.pull_up(parent);
    }

    pub(crate) fn set_weight(&mut self, slot: u32, weight: u64) {
        self.nodes[slot as usize].weight = weight;
        self.pull_up(slot);
    }

    pub(crate) fn weight(&self, slot: u32) -> u64 {
        self.nodes[slot as usize].weight
    }

    pub(crate) fn key(&self, slot: u32) -> Key {
        self.nodes[slot as usize].key
    }

    /// The slot of the greatest key that is not above this one.
    pub(crate) fn floor(&self, key: Key) -> Option<u32> {
        let (mut best, mut next) = (NIL, self.root);
        while next != NIL {
            let node = &self.nodes[next as usize];
            let below = node.key <= key;
            if below {
                best = next;
            }
            next = node.child[usize::from(below)];
        }
        (best != NIL).then_some(best)
    }

    /// The slot of the smallest key that is not below this one.
    pub(crate) fn ceiling(&self, key: Key) -> Option<u32> {
        let (mut best, mut next) = (NIL, self.root);
        while next != NIL {
            let node = &self.nodes[next as usize];
            let below = node.key < key;
            if !below {
                best = next;
            }
            next = node.child[usize::from(below)];
        }
        (best != NIL).then_some(best)
    }

    /// Of the slots that weigh so much or more, the first or the last by key.
    pub(crate) fn heavy(&self, weight: u64, side: Branch) -> Option<u32> {
        if self.root == NIL || self.largest() < weight {
            return None;
        }
        let (near, far) = (side as usize, 1 - side as usize);
        let mut at = self.root;
        loop {
            let node = &self.nodes[at as usize];
            at = match () {
                () if self.is_heavy(node.child[near], weight) => node.child[near],
                () if node.weight >= weight => return Some(at),
                () => node.child[far],
            };
        }
    }

    fn is_heavy(&self, slot: u32, weight: u64) -> bool {
        slot != NIL && self.nodes[slot as usize].largest >= weight
    }

    fn largest_below(&self, slot: u32) -> u64 {
        match slot {
            NIL => 0,
            slot => self.nodes[slot as usize].largest,
        }
    }

    fn outranks(&self, a: u32, b: u32) -> bool {
        self.nodes[a as usize].priority > self.nodes[b as usize].priority
    }

    /// A child takes its parent's place, and the parent goes below it.
    fn rotate_up(&mut self, slot: u32) {
        let parent = self.nodes[slot as usize].parent;
        let above = self.nodes[parent as usize].parent;
        let side = usize::from(self.nodes[parent as usize].child[1] == slot);
        let inner = self.nodes[slot as usize].child[1 - side];
        self.nodes[parent as usize].child[side] = inner;
        if inner != NIL {
            self.nodes[inner as usize].parent = parent;
        }
        self.relink(above, parent, slot);
        self.nodes[slot as usize].child[1 - side] = parent;
        self.nodes[slot as usize].parent = above;
        self.nodes[parent as usize].parent = slot;
        self.pull(parent);
        self.pull(slot);
    }

    /// Hangs `new` below `parent` in the place of `old`.
    fn relink(&mut self, parent: u32, old: u32, new: u32) {
        if parent == NIL {
            self.root = new;
            return;
        }
        let node = &mut self.nodes[parent as usize];
        node.child[usize::from(node.child[1] == old)] = new;
    }

    /// Brings a node's largest weight up to date; whether it changed.
    fn pull(&mut self, slot: u32) -> bool {
        let node = &self.nodes[slot as usize];
        let [low, high] = node.child;
        let largest = node
            .weight
            .max(self.largest_below(low))
            .max(self.largest_below(high));
        std::mem::replace(&mut self.nodes[slot as usize].largest, largest) != largest
    }

    fn pull_up(&mut self, mut slot: u32) {
        while slot != NIL && self.pull(slot) {
            slot = self.nodes[slot as usize].parent;
        }
    }

    /// Order, heap and largest weights are right; gives the slots in order of their keys.
    pub(crate) fn check(&self) -> Result<Vec<u32>, String> {
        let (mut order, mut path, mut next) = (Vec::new(), Vec::new(), self.root);
        while next != NIL || !path.is_empty() {
            while next != NIL {
                path.push(next);
                next = self.nodes[next as usize].child[0];
            }
            let Some(slot) = path.pop() else { break };
            self.check_node(slot)?;
            order.push(slot);
            next = self.nodes[slot as usize].child[1];
        }
        match order
            .windows(2)
            .find(|pair| self.key(pair[0]) >= self.key(pair[1]))
        {
            Some(pair) => Err(format!("keys of slots {pair:?} are out of order")),
            None => Ok(order),
        }
    }

    fn check_node(&self, slot: u32) -> Result<(), String> {
        let node = &self.nodes[slot as usize];
        let mut largest = node.weight;
        for child in node.child.into_iter().filter(|&child| child != NIL) {
            let below = &self.nodes[child as usize];
            largest = largest.max(below.largest);
            if below.parent != slot || below.priority > node.priority {
                return Err(format!("slot {child} does not belong below slot {slot}"));
            }
        }
        if largest != node.largest {
            return Err(format!(
                "slot {slot} knows {} as its largest, which is {largest}",
                node.largest
            ));
        }
        Ok(())
    }
}
