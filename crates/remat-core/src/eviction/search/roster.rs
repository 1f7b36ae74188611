//! The storages that a search among many knows: which are candidates, which of these changed, and what the search notes
//! of each. Its notes outlive a storage's time as a candidate, for most are locked and unlocked again.

use super::order::{Candidate, Entrant};

/// The slot of a storage that is no candidate.
const NO_SLOT: u32 = u32::MAX;

#[derive(Clone, Copy, Default)]
struct Member<N> {
    slot: u32,
    /// Listed among the changed.
    changed: bool,
    note: N,
}

/// Storages with a note of type `N`. While it is off it is told nothing.
#[derive(Default)]
pub(super) struct Roster<N> {
    on: bool,
    /// By storage.
    members: Vec<Member<N>>,
    /// Storages whose candidates changed since they were last seen to.
    changed: Vec<u32>,
}

impl<N: Copy + Default> Roster<N> {
    pub(super) fn is_on(&self) -> bool {
        self.on
    }

    pub(super) fn stop(&mut self) {
        self.on = false;
    }

    /// Starts without notes; all candidates are listed as changed.
    pub(super) fn start(&mut self, candidates: &[Candidate]) {
        self.on = true;
        self.members.clear();
        self.changed.clear();
        for (candidate, slot) in candidates.iter().zip(0..) {
            self.list(candidate.storage.0, slot);
            self.change(candidate.storage.0);
        }
    }

    /// The storage is a candidate in this slot.
    pub(super) fn list(&mut self, storage: u32, slot: u32) {
        if !self.on {
            return;
        }
        let index = storage as usize;
        if index >= self.members.len() {
            let unknown = Member {
                slot: NO_SLOT,
                ..Member::default()
            };
            self.members.resize(index + 1, unknown);
        }
        self.members[index].slot = slot;
    }

    /// The storage is no candidate any more.
    pub(super) fn delist(&mut self, storage: u32) {
        if self.on {
            self.members[storage as usize].slot = NO_SLOT;
        }
    }

    /// The candidate's score or place changed.
    #[inline]
    pub(super) fn change(&mut self, storage: u32) {
        if !self.on {
            return;
        }
        let member = &mut self.members[storage as usize];
        if !std::mem::replace(&mut member.changed, true) {
            self.changed.push(storage);
        }
    }

    /// A storage that changed, candidate or not.
    pub(super) fn next_changed(&mut self) -> Option<u32> {
        let storage = self.changed.pop()?;
        self.members[storage as usize].changed = false;
        Some(storage)
    }

    pub(super) fn note(&self, storage: u32) -> N {
        self.members[storage as usize].note
    }

    pub(super) fn set_note(&mut self, storage: u32, note: N) {
        self.members[storage as usize].note = note;
    }

    pub(super) fn is_candidate(&self, storage: u32) -> bool {
        self.members[storage as usize].slot != NO_SLOT
    }

    /// The storage's entrant, if it is a candidate.
    #[inline]
    pub(super) fn entrant(&self, storage: u32, entrants: &[Entrant]) -> Option<Entrant> {
        let slot = self.members[storage as usize].slot;
        entrants.get(slot as usize).copied()
    }
}
