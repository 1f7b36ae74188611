//! A binary heap with lazy updates, for scores that time does not change.
//!
//! A candidate whose score improves gets another entry. One whose score worsens, or that is no candidate any more,
//! keeps its entry, which is corrected once it comes to the top. So an access by `lru` costs O(1), and a storage that
//! is locked and unlocked again costs nothing.
//!
//! The heap holds the first entries only, to stay within the caches; the rest wait in no order. A search takes O(log n)
//! for each change since the last one, amortized.

use super::order::{Candidate, Entrant, Order, Standing};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The slot of a storage that is no candidate.
const NO_SLOT: u32 = u32::MAX;

/// Outdated entries are dropped once there are so many entries a candidate.
const MOST_ENTRIES: usize = 4;

/// Of all entries, one in so many is put into the heap at a time.
const PART: usize = 8;

/// A storage as the heap knows it, candidate or not.
#[derive(Clone, Copy)]
struct Member {
    slot: u32,
    /// The first standing of its entries, not behind that of the candidate unless it changed.
    queued: Option<Standing>,
    /// Listed among the changed.
    changed: bool,
}

impl Member {
    const UNKNOWN: Member = Member {
        slot: NO_SLOT,
        queued: None,
        changed: false,
    };
}

/// A standing and the storage that has it or had it.
type Entry = (Standing, u32);

/// Candidates by standing. All searches go by one order.
#[derive(Default)]
pub(super) struct LazyHeap {
    on: bool,
    /// Entries up to the bound.
    first: BinaryHeap<Reverse<Entry>>,
    /// Entries beyond the bound.
    rest: Vec<Entry>,
    bound: Option<Standing>,
    /// By storage.
    members: Vec<Member>,
    /// Storages whose candidates changed since the last search.
    changed: Vec<u32>,
}

impl LazyHeap {
    pub(super) fn is_on(&self) -> bool {
        self.on
    }

    pub(super) fn stop(&mut self) {
        self.on = false;
    }

    /// The storage is a candidate in this slot.
    pub(super) fn list(&mut self, storage: u32, slot: u32) {
        let index = storage as usize;
        if index >= self.members.len() {
            self.members.resize(index + 1, Member::UNKNOWN);
        }
        self.members[index].slot = slot;
    }

    /// The storage is no candidate any more.
    pub(super) fn delist(&mut self, storage: u32) {
        self.members[storage as usize].slot = NO_SLOT;
    }

    /// The candidate's score or place changed.
    pub(super) fn change(&mut self, storage: u32) {
        let member = &mut self.members[storage as usize];
        if !std::mem::replace(&mut member.changed, true) {
            self.changed.push(storage);
        }
    }

    /// The slot of the candidate that goes first.
    pub(super) fn best<O: Order>(&mut self, order: &O, entrants: &[Entrant]) -> Option<u32> {
        if !self.on {
            self.start(order.candidates());
        }
        while let Some(storage) = self.changed.pop() {
            self.members[storage as usize].changed = false;
            self.queue(storage, order, entrants);
        }
        if self.first.len() + self.rest.len() > MOST_ENTRIES * entrants.len() {
            self.refill();
        }
        loop {
            let leader = self.leader(order, entrants);
            if leader.is_some() || self.rest.is_empty() {
                return leader;
            }
            self.refill();
        }
    }

    fn start(&mut self, candidates: &[Candidate]) {
        self.on = true;
        self.first.clear();
        self.rest.clear();
        self.bound = None;
        self.members.clear();
        self.changed.clear();
        for (candidate, slot) in candidates.iter().zip(0..) {
            self.list(candidate.storage.0, slot);
            self.change(candidate.storage.0);
        }
    }

    /// Adds an entry, unless the storage is no candidate or has an entry that comes up early enough.
    fn queue<O: Order>(&mut self, storage: u32, order: &O, entrants: &[Entrant]) {
        let member = &mut self.members[storage as usize];
        let Some(&entrant) = entrants.get(member.slot as usize) else {
            return;
        };
        let standing = order.standing(entrant);
        if member.queued.is_some_and(|queued| !standing.before(queued)) {
            return;
        }
        member.queued = Some(standing);
        if self.bound.is_some_and(|bound| standing <= bound) {
            self.first.push(Reverse((standing, storage)));
        } else {
            self.rest.push((standing, storage));
        }
    }

    /// Corrects the heap's first entries until one is true; gives the slot of its candidate.
    fn leader<O: Order>(&mut self, order: &O, entrants: &[Entrant]) -> Option<u32> {
        while let Some(&Reverse((standing, storage))) = self.first.peek() {
            let member = &mut self.members[storage as usize];
            let entrant = entrants.get(member.slot as usize);
            if entrant.is_some_and(|&entrant| order.standing(entrant) == standing) {
                return Some(member.slot);
            }
            self.first.pop();
            if member.queued == Some(standing) {
                member.queued = None;
                self.queue(storage, order, entrants);
            }
        }
        None
    }

    /// Drops outdated entries and puts the first of all others into the heap.
    fn refill(&mut self) {
        let entries = &mut self.rest;
        entries.extend(self.first.drain().map(|Reverse(entry)| entry));
        entries.retain(|&(standing, storage)| {
            let member = &mut self.members[storage as usize];
            if member.slot == NO_SLOT {
                member.queued = None;
            }
            member.queued == Some(standing)
        });
        if entries.is_empty() {
            return;
        }
        let last = entries.len() / PART;
        self.bound = Some(entries.select_nth_unstable(last).1 .0);
        self.first.extend(entries.drain(..=last).map(Reverse));
    }
}

#[cfg(test)]
mod tests {
    use super::super::line::Line;
    use super::super::order::LastAccess;
    use super::*;
    use crate::StorageId;

    /// Candidates with these last accesses, each at its place.
    fn candidates(accesses: &[u64]) -> (Vec<Candidate>, Vec<Entrant>) {
        let candidate = |(place, &since): (u32, &u64)| {
            let candidate = Candidate {
                place: u64::from(place),
                bytes: 1,
                numerator: 1,
                storage: StorageId(place),
                stale: false,
            };
            let line = Line { rate: 0.0, since };
            (candidate, Entrant { line, slot: place })
        };
        (0..).zip(accesses).map(candidate).unzip()
    }

    #[test]
    fn a_later_access_adds_no_entry_until_the_old_one_is_first() {
        let (candidates, mut entrants) = candidates(&[1, 2, 3]);
        let order = LastAccess {
            candidates: &candidates,
        };
        let mut heap = LazyHeap::default();
        assert_eq!(heap.best(&order, &entrants), Some(0));
        for time in 4..100 {
            entrants[1].line.since = time;
            heap.change(1);
            assert_eq!(heap.best(&order, &entrants), Some(0));
            assert_eq!((heap.first.len() + heap.rest.len()), 3);
        }
        entrants[0].line.since = 100;
        heap.change(0);
        assert_eq!(heap.best(&order, &entrants), Some(2));
    }

    #[test]
    fn outdated_entries_are_dropped() {
        let (candidates, mut entrants) = candidates(&[2000; 10]);
        let order = LastAccess {
            candidates: &candidates,
        };
        let mut heap = LazyHeap::default();
        for time in (1000..1500).rev() {
            entrants[5].line.since = time;
            entrants[6].line.since = time - 1000;
            if heap.is_on() {
                heap.change(5);
                heap.change(6);
            }
            assert_eq!(heap.best(&order, &entrants), Some(6));
            assert!((heap.first.len() + heap.rest.len()) <= MOST_ENTRIES * entrants.len());
        }
    }
}
