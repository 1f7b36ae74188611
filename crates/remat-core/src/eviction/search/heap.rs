//! A binary heap with lazy updates, for scores that time does not change.
//!
//! A candidate whose score improves gets another entry. One whose score worsens, or that is no candidate any more,
//! keeps its entry, which is corrected once it comes to the top. So an access by `lru` costs O(1), and a storage that
//! is locked and unlocked again costs nothing.
//!
//! The heap holds the first entries only, to stay within the caches; the rest wait in no order. A search takes O(log n)
//! for each change since the last one, amortized.

use super::order::{Entrant, Order, Standing};
use super::roster::Roster;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Outdated entries are dropped once there are so many entries a candidate.
const MOST_ENTRIES: usize = 4;

/// Of all entries, one in so many is put into the heap at a time.
const PART: usize = 8;

/// A standing and the storage that has it or had it.
type Entry = (Standing, u32);

/// Candidates by standing. All searches go by one order.
#[derive(Default)]
pub(super) struct LazyHeap {
    /// Notes the first standing of a storage's entries. It is not behind that of the candidate, unless this changed.
    pub(super) roster: Roster<Option<Standing>>,
    /// Entries up to the bound.
    first: BinaryHeap<Reverse<Entry>>,
    /// Entries beyond the bound.
    rest: Vec<Entry>,
    bound: Option<Standing>,
}

impl LazyHeap {
    /// The slot of the candidate that goes first.
    pub(super) fn best<O: Order>(&mut self, order: &O, entrants: &[Entrant]) -> Option<u32> {
        if !self.roster.is_on() {
            self.first.clear();
            self.rest.clear();
            self.bound = None;
            self.roster.start(order.candidates());
        }
        while let Some(storage) = self.roster.next_changed() {
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

    /// Adds an entry, unless the storage is no candidate or has an entry that comes up early enough.
    fn queue<O: Order>(&mut self, storage: u32, order: &O, entrants: &[Entrant]) {
        let Some(entrant) = self.roster.entrant(storage, entrants) else {
            return;
        };
        let standing = order.standing(entrant);
        let queued = self.roster.note(storage);
        if queued.is_some_and(|queued| !standing.before(queued)) {
            return;
        }
        self.roster.set_note(storage, Some(standing));
        if self.bound.is_some_and(|bound| standing <= bound) {
            self.first.push(Reverse((standing, storage)));
        } else {
            self.rest.push((standing, storage));
        }
    }

    /// Corrects the heap's first entries until one is true; gives the slot of its candidate.
    fn leader<O: Order>(&mut self, order: &O, entrants: &[Entrant]) -> Option<u32> {
        while let Some(&Reverse((standing, storage))) = self.first.peek() {
            if let Some(entrant) = self.roster.entrant(storage, entrants) {
                if order.standing(entrant) == standing {
                    return Some(entrant.slot);
                }
            }
            self.first.pop();
            if self.roster.note(storage) == Some(standing) {
                self.roster.set_note(storage, None);
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
            if !self.roster.is_candidate(storage) {
                self.roster.set_note(storage, None);
            }
            self.roster.note(storage) == Some(standing)
        });
        if entries.is_empty() {
            return;
        }
        let last = entries.len() / PART;
        self.bound = Some(entries.select_nth_unstable(last).1.0);
        self.first.extend(entries.drain(..=last).map(Reverse));
    }
}

#[cfg(test)]
mod tests {
    use super::super::order::{Candidate, LastAccess, Line};
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
            heap.roster.change(1);
            assert_eq!(heap.best(&order, &entrants), Some(0));
            assert_eq!((heap.first.len() + heap.rest.len()), 3);
        }
        entrants[0].line.since = 100;
        heap.roster.change(0);
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
            heap.roster.change(5);
            heap.roster.change(6);
            assert_eq!(heap.best(&order, &entrants), Some(6));
            assert!((heap.first.len() + heap.rest.len()) <= MOST_ENTRIES * entrants.len());
        }
    }
}
