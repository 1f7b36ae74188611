//! The elementary transitions of a storage: locked and unlocked, listed as a candidate, evicted and brought back, and
//! what each does to its evicted neighbourhood. Every one is journaled.

use crate::eviction::neighbourhood::Change;
use crate::graph::NONE;
use crate::journal::Entry;
use crate::transaction::state::State;
use crate::{Step, StorageId, TensorId};

impl State {
    pub(crate) fn lock(&mut self, s: StorageId) {
        self.journal.write(Entry::Locked(s));
        self.graph.storages[s.index()].locks += 1;
        self.delist(s);
    }

    /// One lock less; the last one makes the storage a candidate again.
    pub(crate) fn unlock(&mut self, s: StorageId) {
        self.journal.write(Entry::Unlocked(s));
        let storage = &mut self.graph.storages[s.index()];
        storage.locks = storage.locks.saturating_sub(1);
        self.list(s);
    }

    /// Appends a storage to the candidates if it is evictable and not there.
    pub(crate) fn list(&mut self, s: StorageId) {
        let storage = &self.graph.storages[s.index()];
        if storage.locks == 0 && storage.resident && !storage.pinned && storage.slot == NONE {
            self.journal.write(Entry::Listed(s));
            self.append(s);
        }
    }

    /// Takes a storage off the candidates if it is there.
    pub(crate) fn delist(&mut self, s: StorageId) {
        if self.graph.storages[s.index()].slot != NONE {
            let place = self.remove(s);
            self.journal.write(Entry::Delisted(s, place));
        }
    }

    /// Sets the last access to now.
    pub(crate) fn touch(&mut self, s: StorageId) {
        let storage = &self.graph.storages[s.index()];
        let before = storage.last_access;
        // The banishing runtime of the reference leaves what nobody references as it was (rule 15).
        let ages = storage.refs > 0 || self.dealloc != crate::Dealloc::Banish;
        if ages && before != self.clock {
            self.journal.write(Entry::Accessed(s, before));
            self.set_last_access(s, self.clock);
        }
    }

    pub(crate) fn set_defined(&mut self, t: TensorId) {
        let tensor = &mut self.graph.tensors[t.index()];
        if !tensor.defined {
            tensor.defined = true;
            self.journal.write(Entry::Defined(t));
        }
    }

    pub(crate) fn pin_storage(&mut self, s: StorageId) {
        if !self.graph.storages[s.index()].pinned {
            self.delist(s);
            self.journal.write(Entry::Pinned(s));
            self.graph.storages[s.index()].pinned = true;
        }
    }

    /// Sets the bytes of a pool, and its peaks.
    pub(crate) fn set_memory(&mut self, pool: u8, memory: u64) {
        let record = self.pool(pool);
        let (before, peak) = (record.memory, record.peak);
        record.memory = memory;
        record.high = record.high.max(memory);
        record.peak = peak.max(memory);
        if memory != before {
            self.journal.write(Entry::Memory(pool, before));
        }
        if memory > peak {
            self.journal.write(Entry::Peak(pool, peak));
        }
    }

    pub(crate) fn grow(&mut self, pool: u8, bytes: u64) {
        if bytes > 0 {
            let memory = self.pool(pool).memory.saturating_add(bytes);
            self.set_memory(pool, memory);
        }
    }

    pub(crate) fn shrink(&mut self, pool: u8, bytes: u64) {
        if bytes > 0 {
            let memory = self.pool(pool).memory.saturating_sub(bytes);
            self.set_memory(pool, memory);
        }
    }

    pub(crate) fn push_step(&mut self, step: Step) {
        self.journal.mark();
        self.steps.push(step);
    }

    /// Evicts a resident storage and frees its bytes: a step.
    pub(crate) fn evict(&mut self, s: StorageId) {
        self.push_step(Step::Evict(s));
        let (pool, bytes) = {
            let storage = &self.graph.storages[s.index()];
            (storage.pool, storage.bytes)
        };
        self.lose_value(s);
        self.shrink(pool, bytes);
        self.vacate(s);
    }

    /// The storage's value goes, its bytes do not (yet): they are freed, or another value takes the block.
    pub(crate) fn lose_value(&mut self, s: StorageId) {
        self.delist(s);
        self.journal.write(Entry::BecameEvicted(s));
        self.graph.storages[s.index()].resident = false;
        for place in 0..self.graph.storages[s.index()].views.len() {
            let view = self.graph.storages[s.index()].views[place];
            let tensor = &mut self.graph.tensors[view.index()];
            if tensor.defined {
                tensor.defined = false;
                self.journal.write(Entry::Undefined(view));
            }
        }
        self.note_eviction(s);
    }

    /// The storage's value is there; its bytes are accounted for by the caller.
    pub(crate) fn gain_value(&mut self, s: StorageId) {
        self.journal.write(Entry::BecameResident(s));
        self.graph.storages[s.index()].resident = true;
        self.graph.storages[s.index()].announced = 0;
        // While it was away nobody told it of changes next to it.
        self.void_numerator(s);
        self.note_return(s);
    }

    fn note_eviction(&mut self, s: StorageId) {
        let storage = &self.graph.storages[s.index()];
        if storage.gone() {
            return;
        }
        if self.counts_components() {
            self.join_component(s);
        } else if self.rule.numerator.is_exact() {
            self.void_neighbourhood(s, Change::Evicted);
        }
    }

    fn note_return(&mut self, s: StorageId) {
        if self.counts_components() {
            self.leave_component(s);
        } else if self.rule.numerator.is_exact() {
            self.void_neighbourhood(s, Change::Back);
        }
    }

    /// A new set worth the storage's cost, merged with those of its evicted neighbours (appendix C.2).
    fn join_component(&mut self, s: StorageId) {
        let cost = self.graph.storages[s.index()].cost as i64;
        self.set_node(s, NONE);
        let mut root = self.make_node(s, cost);
        let mut around = std::mem::take(&mut self.around);
        self.neighbours(s, &mut around);
        for &neighbour in &around {
            if self.graph.storages[neighbour.index()].resident {
                self.void_numerator(neighbour);
                continue;
            }
            let node = self.graph.storages[neighbour.index()].node;
            let node = if node == NONE {
                self.announce_node(neighbour)
            } else {
                node
            };
            let other = self.components.root(node);
            self.void_watchers(other);
            self.void_watchers(root);
            if let Some(child) = self.components.join(root, other) {
                self.journal.write(Entry::Joined(child));
                root = self.components.root(child);
            }
        }
        self.around = around;
    }

    /// A storage announced and not yet computed gets its empty set when it is first merged with.
    fn announce_node(&mut self, s: StorageId) -> u32 {
        let mut around = Vec::new();
        self.neighbours(s, &mut around);
        around
            .iter()
            .for_each(|&neighbour| self.void_numerator(neighbour));
        self.make_node(s, 0)
    }

    fn make_node(&mut self, s: StorageId, worth: i64) -> u32 {
        let node = self.components.make(worth);
        self.journal.write(Entry::NodeMade(node));
        self.set_node(s, node);
        node
    }

    fn set_node(&mut self, s: StorageId, node: u32) {
        let before = self.graph.storages[s.index()].node;
        if before == node {
            return;
        }
        self.journal.write(Entry::Node(s, before));
        self.graph.storages[s.index()].node = node;
        if before != NONE {
            self.components.unpoint(before);
        }
        if node != NONE {
            self.components.point(node);
        }
    }

    /// Takes a storage out of its set, by its present cost (appendix C.2, the splitting approximation).
    pub(crate) fn leave_component(&mut self, s: StorageId) {
        let storage = &self.graph.storages[s.index()];
        let (node, cost) = (storage.node, storage.cost as i64);
        if node != NONE {
            self.add_worth(node, cost.wrapping_neg());
            self.set_node(s, NONE);
        }
    }

    /// Changes the worth of the set of a node.
    pub(crate) fn add_worth(&mut self, node: u32, delta: i64) {
        let root = self.components.root(node);
        self.components.add_worth(root, delta);
        self.journal.write(Entry::Worth(root, delta));
        self.void_watchers(root);
    }

    fn void_watchers(&mut self, root: u32) {
        let mut touched = std::mem::take(&mut self.touched);
        self.components.take_watchers(root, &mut touched);
        for watcher in touched.drain(..) {
            self.void_numerator(StorageId(watcher));
        }
        self.touched = touched;
    }
}
