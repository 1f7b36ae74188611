//! The candidates of a device, and the choice of how to search them.

use super::heap::LazyHeap;
use super::horizon::Horizons;
use super::order::{Ageless, Aging, Candidate, Draw, Entrant, LastAccess, Line, Order};
use super::scan::scan;
use crate::StorageId;
use crate::eviction::policy::Form;

/// Fewer candidates than this are scanned faster (`cargo run --release -p remat-core --example search`).
pub(crate) const MANY: usize = 4096;

/// The candidates of a device, in no order; a candidate's slot is its index.
#[derive(Default)]
pub(crate) struct List {
    pub(super) candidates: Vec<Candidate>,
    /// Beside the candidates, the part that every comparison reads.
    pub(super) entrants: Vec<Entrant>,
    /// By scores that do not change with time.
    pub(super) heap: LazyHeap,
    /// By scores that fall with time.
    pub(super) horizons: Horizons,
}

impl List {
    pub(crate) fn len(&self) -> usize {
        self.candidates.len()
    }

    pub(crate) fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }

    pub(crate) fn candidate(&mut self, slot: u32) -> &mut Candidate {
        &mut self.candidates[slot as usize]
    }

    /// Appends a candidate; gives its slot. It takes part once it has a numerator.
    pub(crate) fn push(&mut self, candidate: Candidate, last_access: u64) -> u32 {
        let slot = self.candidates.len() as u32;
        self.candidates.push(candidate);
        let line = Line {
            rate: 0.0,
            since: last_access,
        };
        self.entrants.push(Entrant { line, slot });
        self.heap.roster.list(candidate.storage.0, slot);
        self.horizons.roster.list(candidate.storage.0, slot);
        slot
    }

    /// Takes a candidate off. The last one moves to its slot; gives both.
    pub(crate) fn remove(&mut self, slot: u32) -> (Candidate, Option<StorageId>) {
        let place = slot as usize;
        let removed = self.candidates.swap_remove(place);
        self.entrants.swap_remove(place);
        let moved = self.candidates.get(place).map(|moved| moved.storage);
        self.heap.roster.delist(removed.storage.0);
        self.horizons.roster.delist(removed.storage.0);
        if let Some(moved) = moved {
            self.entrants[place].slot = slot;
            self.heap.roster.list(moved.0, slot);
            self.horizons.roster.list(moved.0, slot);
        }
        (removed, moved)
    }

    pub(crate) fn set_last_access(&mut self, slot: u32, time: u64) {
        self.entrants[slot as usize].line.since = time;
        if !self.candidates[slot as usize].stale {
            self.change(slot);
        }
    }

    /// Sets the size that a candidate is scored by.
    pub(crate) fn set_bytes(&mut self, slot: u32, bytes: u64, form: Form) {
        let candidate = &mut self.candidates[slot as usize];
        candidate.bytes = bytes;
        if !candidate.stale {
            let numerator = candidate.numerator;
            self.set_numerator(slot, numerator, form);
        }
    }

    pub(crate) fn set_numerator(&mut self, slot: u32, numerator: i64, form: Form) {
        let candidate = &mut self.candidates[slot as usize];
        candidate.numerator = numerator;
        candidate.stale = false;
        if let Form::Quotient { size, .. } = form {
            let size = if size { candidate.bytes } else { 1 };
            self.entrants[slot as usize].line.rate = match numerator {
                _ if size == 0 => 0.0,
                1.. => size as i64 as f64 / numerator as f64,
                _ => f64::INFINITY,
            };
        }
        self.change(slot);
    }

    /// About the reciprocal of a candidate's score.
    pub(crate) fn worth(&self, slot: u32, form: Form, clock: u64) -> f64 {
        let Line { rate, since } = self.entrants[slot as usize].line;
        match form {
            Form::Quotient { stale: true, .. } => rate * clock.saturating_sub(since) as f64,
            _ => rate,
        }
    }

    /// About the numerator with which a candidate's score would have this reciprocal.
    pub(crate) fn numerator_for(&self, slot: u32, form: Form, clock: u64, worth: f64) -> i64 {
        let Form::Quotient { size, stale } = form else {
            return i64::MAX;
        };
        let place = slot as usize;
        let bytes = if size {
            self.candidates[place].bytes
        } else {
            1
        };
        let age = if stale {
            clock.saturating_sub(self.entrants[place].line.since)
        } else {
            1
        };
        // Not a number where both are 0, which converts to 0.
        (bytes as f64 * age as f64 / worth) as i64
    }

    #[inline]
    fn change(&mut self, slot: u32) {
        let storage = self.candidates[slot as usize].storage.0;
        self.heap.roster.change(storage);
        self.horizons.roster.change(storage);
    }

    /// The slot of the candidate with the smallest score; by scan unless there are `many`. All numerators are valid.
    pub(crate) fn best(&mut self, form: Form, clock: u64, salt: u64, many: usize) -> Option<u32> {
        let (candidates, entrants) = (&self.candidates[..], &self.entrants[..]);
        match form {
            Form::LastAccess => {
                timeless(&mut self.heap, &LastAccess { candidates }, entrants, many)
            }
            Form::Draw => scan(&Draw { candidates, salt }, entrants.iter().copied()),
            Form::Quotient {
                size: by_size,
                stale: false,
            } => {
                let order = Ageless {
                    candidates,
                    by_size,
                };
                timeless(&mut self.heap, &order, entrants, many)
            }
            Form::Quotient {
                size: by_size,
                stale: true,
            } => {
                let order = Aging {
                    candidates,
                    by_size,
                    clock,
                };
                aging(&mut self.horizons, &order, entrants, many)
            }
        }
    }
}

/// The first by scores that time does not change.
fn timeless<O: Order>(
    heap: &mut LazyHeap,
    order: &O,
    entrants: &[Entrant],
    many: usize,
) -> Option<u32> {
    if is_few(entrants.len(), many, heap.roster.is_on()) {
        heap.roster.stop();
        return scan(order, entrants.iter().copied());
    }
    let best = heap.best(order, entrants);
    check(order, entrants, best);
    best
}

/// The first by scores that fall with time.
fn aging(
    horizons: &mut Horizons,
    order: &Aging<'_>,
    entrants: &[Entrant],
    many: usize,
) -> Option<u32> {
    if is_few(entrants.len(), many, horizons.roster.is_on()) {
        horizons.roster.stop();
        return scan(order, entrants.iter().copied());
    }
    let best = horizons.best(order, entrants);
    let best = best.or_else(|| scan(order, entrants.iter().copied()));
    check(order, entrants, best);
    best
}

/// Whether so many are to be scanned. Once they are many, they are so down to half of that: a count that wavers does
/// not start over.
fn is_few(count: usize, many: usize, on: bool) -> bool {
    count < if on { many / 2 } else { many }
}

/// Every search of few and some of many pick the candidate that a scan picks.
fn check<O: Order>(order: &O, entrants: &[Entrant], best: Option<u32>) {
    #[cfg(debug_assertions)]
    if entrants.len() < 200 || best.is_some_and(|slot| slot % 8 == 0) {
        debug_assert_eq!(best, scan(order, entrants.iter().copied()));
    }
    #[cfg(not(debug_assertions))]
    let _ = (order, entrants, best);
}
