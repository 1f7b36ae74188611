//! The elementary transitions of a storage: locked and unlocked, listed as a candidate, evicted and brought back. Each
//! changes its evicted neighbourhood, and each is journaled.

use super::state::State;
use crate::config::Dealloc;
use crate::eviction::Change;
use crate::graph::NONE;
use crate::ids::{OpId, StorageId, TensorId};
use crate::journal::Entry;
use crate::op::Step;

impl State {
    pub(crate) fn lock(&mut self, s: StorageId) {
        self.journal.write(Entry::Locked(s));
        self.graph[s].locks += 1;
        self.delist(s);
    }

    /// One lock less; the last one makes the storage a candidate again.
    pub(crate) fn unlock(&mut self, s: StorageId) {
        self.journal.write(Entry::Unlocked(s));
        let storage = &mut self.graph[s];
        storage.locks = storage.locks.saturating_sub(1);
        self.list(s);
    }

    /// Appends a storage to the candidates if it is evictable and not there.
    pub(crate) fn list(&mut self, s: StorageId) {
        let storage = &self.graph[s];
        if storage.locks == 0 && storage.resident && !storage.pinned && storage.slot == NONE {
            self.journal.write(Entry::Listed(s));
            self.list_at(s, None);
        }
    }

    /// Lists a storage at a place that it had, or as the latest candidate; undoes taking it off.
    pub(super) fn list_at(&mut self, s: StorageId, place: Option<u64>) {
        let bytes = self.arenas.scored_bytes(&self.graph[s]);
        self.eviction.list(&mut self.graph, s, place, bytes);
    }

    /// Takes a storage off the candidates if it is there.
    pub(crate) fn delist(&mut self, s: StorageId) {
        if self.graph[s].slot != NONE {
            let place = self.eviction.candidates.remove(&mut self.graph, s);
            self.journal.write(Entry::Delisted(s, place));
        }
    }

    /// Sets the last access to now.
    pub(crate) fn touch(&mut self, s: StorageId) {
        let storage = &self.graph[s];
        let before = storage.last_access;
        // The banishing runtime of the reference leaves what nobody references as it was (rule 15).
        let ages = storage.refs > 0 || self.dealloc != Dealloc::Banish;
        if ages && before != self.clock {
            self.journal.write(Entry::Accessed(s, before));
            self.set_last_access(s, self.clock);
        }
    }

    pub(crate) fn set_defined(&mut self, t: TensorId) {
        let tensor = &mut self.graph[t];
        if !tensor.defined {
            tensor.defined = true;
            self.journal.write(Entry::Defined(t));
        }
    }

    pub(crate) fn pin_storage(&mut self, s: StorageId) {
        if !self.graph[s].pinned {
            self.delist(s);
            self.journal.write(Entry::Pinned(s));
            self.graph[s].pinned = true;
            self.collection.pinned.push(s);
        }
    }

    /// Sets the bytes of a device, and its peaks.
    pub(crate) fn set_memory(&mut self, device: u8, memory: u64) {
        let record = self.accounts.of(device);
        let (before, peak) = (record.memory, record.peak);
        record.memory = memory;
        record.high = record.high.max(memory);
        record.peak = peak.max(memory);
        if memory != before {
            self.journal.write(Entry::Memory(device, before));
        }
        if memory > peak {
            self.journal.write(Entry::Peak(device, peak));
        }
    }

    pub(crate) fn grow(&mut self, device: u8, bytes: u64) {
        if bytes > 0 {
            let memory = self.accounts.of(device).memory.saturating_add(bytes);
            self.set_memory(device, memory);
        }
    }

    pub(crate) fn shrink(&mut self, device: u8, bytes: u64) {
        if bytes > 0 {
            let memory = self.accounts.of(device).memory.saturating_sub(bytes);
            self.set_memory(device, memory);
        }
    }

    pub(crate) fn push_step(&mut self, step: Step) {
        self.journal.mark();
        self.steps.push(step);
    }

    /// Evicts a resident storage and frees its bytes: a step.
    pub(crate) fn evict(&mut self, s: StorageId) {
        self.push_step(Step::Evict(s));
        let (device, bytes) = {
            let storage = &self.graph[s];
            (storage.device, storage.bytes)
        };
        self.lose_value(s);
        self.shrink(device, bytes);
        self.vacate(s);
    }

    /// The storage's value goes, its bytes do not (yet): they are freed, or another value takes the block.
    pub(crate) fn lose_value(&mut self, s: StorageId) {
        self.delist(s);
        self.journal.write(Entry::BecameEvicted(s));
        self.graph[s].resident = false;
        for place in 0..self.graph[s].views.len() {
            let view = self.graph[s].views[place];
            let tensor = &mut self.graph[view];
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
        self.graph[s].resident = true;
        self.graph[s].announced = 0;
        // While it was evicted, changes next to it did not void its score.
        self.void_numerator(s);
        self.note_return(s);
    }

    /// The candidate to evict next. The search counts as an exhaustive one, as in the paper, with the ancestors that it
    /// looked at: where the policy compares bounds first, a few of most candidates.
    pub(crate) fn victim(&mut self, device: u8) -> Option<StorageId> {
        let (graph, journal) = (&mut self.graph, &mut self.journal);
        let victim = self.eviction.victim(graph, journal, device, self.clock)?;
        journal.write(Entry::Searched(victim.evaluated, victim.accesses));
        self.counters.searches += 1;
        self.counters.score_evaluations += u64::from(victim.evaluated);
        self.counters.metadata_accesses += victim.accesses;
        Some(victim.storage)
    }

    pub(crate) fn evict_all_candidates(&mut self) {
        for (_, s) in self.eviction.candidates.in_order() {
            self.evict(s);
        }
    }

    /// Evicts what nobody can ask for.
    pub(crate) fn evict_if_unreachable(&mut self, s: StorageId) {
        let storage = &self.graph[s];
        if storage.unreachable() && storage.resident {
            self.evict(s);
        }
    }

    /// The surroundings or the cost of a storage changed: its score is counted afresh.
    pub(crate) fn void_numerator(&mut self, s: StorageId) {
        if self.eviction.has_scored() {
            self.eviction.candidates.void(&mut self.graph, s);
        }
    }

    /// The first reference from outside came, or the last went.
    pub(crate) fn note_references(&mut self, s: StorageId) {
        self.void_numerator(s);
        if !self.graph[s].resident {
            self.eviction.void_discounts(&mut self.graph, s);
        }
    }

    /// A storage changed that scores around it may count.
    pub(super) fn void_neighbourhood(&mut self, s: StorageId, change: Change) {
        let (graph, journal) = (&mut self.graph, &mut self.journal);
        self.eviction.void_neighbourhood(graph, journal, s, change);
    }

    /// Scores next to an op are about to change.
    pub(super) fn void_around(&mut self, op: OpId) {
        if !self.eviction.has_scored() {
            return;
        }
        let exact = self.eviction.counts_neighbourhoods();
        let inputs = self.graph[op].inputs.len();
        for index in 0..inputs + self.graph[op].outputs.len() {
            let s = if index < inputs {
                self.graph.input(op, index)
            } else {
                self.graph.output(op, index - inputs)
            };
            if exact && !self.graph[s].resident {
                self.void_neighbourhood(s, Change::Other);
            } else {
                self.void_numerator(s);
            }
        }
    }

    pub(super) fn set_last_access(&mut self, s: StorageId, time: u64) {
        let (graph, journal) = (&mut self.graph, &mut self.journal);
        self.eviction.set_last_access(graph, journal, s, time);
    }

    /// Takes a storage out of its component.
    pub(super) fn leave_component(&mut self, s: StorageId) {
        let (graph, journal) = (&mut self.graph, &mut self.journal);
        self.eviction.leave_component(graph, journal, s);
    }

    fn note_eviction(&mut self, s: StorageId) {
        if self.graph[s].unreachable() {
            return;
        }
        if self.eviction.counts_components() {
            let (graph, journal) = (&mut self.graph, &mut self.journal);
            self.eviction.join_component(graph, journal, s);
        } else {
            self.void_neighbourhood(s, Change::Evicted);
        }
    }

    fn note_return(&mut self, s: StorageId) {
        if self.eviction.counts_components() {
            self.leave_component(s);
        } else {
            self.void_neighbourhood(s, Change::Back);
        }
    }
}
