//! How a plan's changes are taken back: all of them where it does not fit, the latest where it was cut short.

use super::state::{Call, State};
use crate::ids::{StorageId, TensorId};
use crate::journal::Entry;
use crate::random::Draws;

impl State {
    /// Goes back to an earlier length of the journal.
    pub(crate) fn undo_to(&mut self, length: usize) {
        while self.journal.entries.len() > length {
            if let Some(entry) = self.journal.entries.pop() {
                self.undo(entry);
            }
        }
        self.void_scored_since();
    }

    /// Goes back to before the plan.
    pub(crate) fn roll_back(&mut self) {
        self.undo_to(0);
        self.forget_plan();
    }

    /// Voids the numerators computed while the journal was on: they counted changes that are now undone. Older ones
    /// that are still valid counted none: a change around them would have voided them, so the state they were computed
    /// in is back.
    fn void_scored_since(&mut self) {
        while let Some(s) = self.journal.scored.pop() {
            self.void_numerator(s);
        }
    }

    fn undo(&mut self, entry: Entry) {
        match entry {
            Entry::Locked(s) => self.graph[s].locks -= 1,
            Entry::Unlocked(s) => self.graph[s].locks += 1,
            Entry::Listed(s) => self.eviction.candidates.unlist(&mut self.graph, s),
            Entry::Delisted(s, place) => self.list_at(s, Some(place)),
            Entry::Accessed(s, before) => self.set_last_access(s, before),
            Entry::BecameResident(s) => self.graph[s].resident = false,
            Entry::BecameEvicted(s) => self.graph[s].resident = true,
            Entry::Pinned(s) => {
                self.graph[s].pinned = false;
                self.collection.pinned.retain(|&pinned| pinned != s);
            }
            Entry::Defined(t) => self.graph[t].defined = false,
            Entry::Undefined(t) => self.graph[t].defined = true,
            Entry::Memory(device, before) => self.accounts.of(device).memory = before,
            Entry::Peak(device, before) => self.accounts.of(device).peak = before,
            Entry::Replayed(op) => {
                let cost = self.graph[op].cost;
                self.clock -= cost;
                self.counters.replays -= 1;
                self.counters.replayed_cost.0 -= cost;
            }
            Entry::Searched(..)
            | Entry::Drew(_)
            | Entry::NodeMade(_)
            | Entry::Joined(_)
            | Entry::ComponentCost(..)
            | Entry::Saw(..)
            | Entry::Propagated(..)
            | Entry::Node(..) => self.undo_score(entry),
            Entry::Taken(..)
            | Entry::Freed(..)
            | Entry::Address(..)
            | Entry::Counted
            | Entry::Capacity(..) => self.undo_block(entry),
        }
    }

    /// Takes back a search, or a change of what scores are made of.
    fn undo_score(&mut self, entry: Entry) {
        let (graph, eviction) = (&mut self.graph, &mut self.eviction);
        match entry {
            Entry::Searched(evaluations, accesses) => {
                self.counters.evictions -= 1;
                self.counters.searches -= 1;
                self.counters.score_evaluations -= u64::from(evaluations);
                self.counters.metadata_accesses -= accesses;
            }
            Entry::Drew(before) => eviction.draws = Draws(before),
            Entry::NodeMade(node) => eviction.components.unmake(node),
            Entry::Joined(child) => eviction.components.unjoin(child),
            Entry::ComponentCost(root, delta) => {
                eviction.components.add_cost(root, delta.wrapping_neg());
            }
            Entry::Saw(s, before) => graph[s].seen_announcement = before,
            Entry::Propagated(s, before) => graph[s].propagated_announcement = before,
            Entry::Node(s, before) => eviction.replace_node(graph, s, before),
            _ => {}
        }
    }

    /// Goes back to what the first steps of the latest plan left; its call is cancelled.
    pub(crate) fn abort(&mut self, performed: usize) {
        let call = std::mem::replace(&mut self.call, Call::Plain);
        if call == Call::Plain {
            return;
        }
        let marks = &self.journal.marks;
        let mark = marks.get(performed).or(marks.last()).copied();
        self.undo_to(mark.unwrap_or(0));
        self.drop_plan_locks();
        self.free_orphaned_blocks();
        self.journal.clear();
        self.steps.clear();
        self.collection.to_cut.clear();
        match call {
            Call::Begin(op) => self.forget_begun(op),
            Call::Budget(device, before) => self.accounts.of(device).budget = before,
            Call::Constant(tensor) => self.withdraw_constant(tensor),
            Call::Plan | Call::Plain => {}
        }
    }

    /// Gives back the locks that the plan so far took and did not give back.
    fn drop_plan_locks(&mut self) {
        let mut held: Vec<(StorageId, i64)> = Vec::new();
        let mut place = vec![usize::MAX; self.graph.storages.len()];
        for entry in &self.journal.entries {
            let (s, delta) = match *entry {
                Entry::Locked(s) => (s, 1),
                Entry::Unlocked(s) => (s, -1),
                _ => continue,
            };
            if place[s.index()] == usize::MAX {
                place[s.index()] = held.len();
                held.push((s, 0));
            }
            held[place[s.index()]].1 += delta;
        }
        for (s, locks) in held {
            for _ in 0..locks {
                self.unlock(s);
            }
        }
    }

    fn withdraw_constant(&mut self, tensor: TensorId) {
        let s = self.graph.storage_of(tensor);
        let storage = &mut self.graph[s];
        storage.resident = false;
        storage.pinned = false;
        storage.used = false;
        self.graph.unview(tensor);
        self.graph.free_tensors.push(tensor);
        self.graph.free_storages.push(s);
    }
}
