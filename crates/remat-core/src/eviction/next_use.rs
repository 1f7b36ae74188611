//! When a plan reads each storage next, and which candidate it reads last (Belady 1966).
//!
//! The turns of a plan form a stack, the next one on top. So the uses of a storage form a stack as well: the one
//! registered last comes first.

use super::candidates::Candidates;
use crate::graph::{Graph, NONE};
use crate::ids::StorageId;

struct Turn {
    /// Where its uses begin.
    uses: usize,
    /// The cost of it and of all turns below it.
    cost: u64,
}

#[derive(Clone, Copy)]
struct Use {
    storage: StorageId,
    /// The turn that reads the storage: the cost of it and of all below it.
    cost: u64,
    /// The storage's use after this one, [`NONE`] for none.
    next: u32,
}

/// The uses that a plan knows of.
#[derive(Default)]
pub(crate) struct NextUses {
    /// Victims are chosen by the uses to come.
    known: bool,
    turns: Vec<Turn>,
    uses: Vec<Use>,
    /// By storage, its next use; [`NONE`] for none.
    next: Vec<u32>,
}

impl NextUses {
    /// From now on victims are chosen by the uses to come, of which there are none yet.
    pub(crate) fn begin(&mut self, storages: usize) {
        while let Some(old) = self.uses.pop() {
            self.next[old.storage.index()] = NONE;
        }
        self.turns.clear();
        self.next.resize(storages, NONE);
        self.known = true;
    }

    /// From now on victims are chosen by the policy.
    pub(crate) fn end(&mut self) {
        self.known = false;
    }

    /// Whether victims are chosen by the uses to come.
    pub(crate) fn are_known(&self) -> bool {
        self.known
    }

    /// A turn that comes before those registered so far, at this cost; its uses follow.
    pub(crate) fn push_turn(&mut self, cost: u64) {
        self.turns.push(Turn {
            uses: self.uses.len(),
            cost: self.cost_ahead().saturating_add(cost),
        });
    }

    /// The turn pushed last reads the storage.
    pub(crate) fn add_use(&mut self, storage: StorageId) {
        let cost = self.cost_ahead();
        let next = &mut self.next[storage.index()];
        self.uses.push(Use {
            storage,
            cost,
            next: *next,
        });
        *next = self.uses.len() as u32 - 1;
    }

    /// The turn on top is taken: its uses are over.
    pub(crate) fn pop_turn(&mut self) {
        let Some(turn) = self.turns.pop() else {
            return;
        };
        while self.uses.len() > turn.uses {
            if let Some(used) = self.uses.pop() {
                self.next[used.storage.index()] = used.next;
            }
        }
    }

    /// Whether the plan reads the storage again.
    pub(crate) fn is_used(&self, s: StorageId) -> bool {
        self.next[s.index()] != NONE
    }

    fn cost_ahead(&self) -> u64 {
        self.turns.last().map_or(0, |turn| turn.cost)
    }

    /// The candidate that is read last, and how many were compared. Those that the plan does not read at all are read
    /// after it, the staler the later. Takes a scan of the candidates.
    pub(crate) fn furthest(
        &self,
        graph: &Graph,
        candidates: &Candidates,
        device: u8,
        clock: u64,
    ) -> Option<(StorageId, u32)> {
        let top = self.cost_ahead();
        let mut best: Option<(bool, u64, u64, StorageId)> = None;
        let mut count = 0;
        for candidate in candidates.of(device) {
            count += 1;
            let s = candidate.storage;
            let storage = &graph[s];
            let away = match self.next[s.index()] {
                NONE => top.saturating_add(clock.saturating_sub(storage.last_access)),
                next => top - self.uses[next as usize].cost,
            };
            let compared = (storage.bytes > 0, away, candidate.place, s);
            if best.is_none_or(|best| compared > best) {
                best = Some(compared);
            }
        }
        best.map(|(.., s)| (s, count))
    }
}
