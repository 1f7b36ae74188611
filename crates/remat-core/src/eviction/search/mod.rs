//! The search for the candidate with the smallest score, exact to the last rounding.
//!
//! `1 / score = (size / cost) * (now - last access)` grows with time along a [`Line`]; the best candidate is the one whose
//! line is highest now. A pool of few candidates is scanned ([`scan`]). In one of many, candidates sleep while they surely
//! cannot be the best ([`Horizon`], and [`Oldest`] for `lru`); scores that time does not change are kept in a
//! [`Tournament`]. All compare by the same [`Order`], and so they pick the same victim. A draw is always a scan: it scores every
//! candidate afresh.

mod horizon;
mod oldest;
mod order;
mod quotient;
mod ranks;
mod scan;
mod span;
#[cfg(test)]
mod tests;
mod tournament;
mod wheel;

use crate::eviction::policy::Form;
use crate::StorageId;
use horizon::Horizon;
use oldest::Oldest;
use order::{Ageless, Aging, Draw, Entrant, LastAccess, Order};
use ranks::Ranks;
use scan::scan;
use tournament::Tournament;

/// Fewer candidates than this are scanned faster (`cargo run --release -p remat-core --example search`).
pub(crate) const MANY: usize = 4096;

/// What is known of a candidate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    /// When it last became evictable.
    pub(crate) place: u64,
    pub(crate) bytes: u64,
    pub(crate) numerator: i64,
    pub(crate) storage: StorageId,
    /// The numerator must be computed again.
    pub(crate) stale: bool,
}

/// The reciprocal of a candidate's score over time: `rate * (now - since)`, not above 0 for an infinite score.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Line {
    /// Size by numerator, within 1e-15 of it. 0 for size 0, infinite for numerators that are not above 0.
    rate: f64,
    /// The last access.
    since: u64,
}

impl Line {
    fn at(self, clock: u64) -> f64 {
        // Times are below 2^63.
        self.rate * (clock as i64).wrapping_sub(self.since as i64) as f64
    }
}

/// The candidates of a pool, in no order; a candidate's slot is where it stands.
#[derive(Default)]
pub(crate) struct List {
    candidates: Vec<Candidate>,
    /// Beside the candidates, where the search looks.
    entrants: Vec<Entrant>,
    horizon: Horizon,
    oldest: Oldest,
    /// Of scores that do not fall with time.
    ageless: Tournament,
    /// Of infinite scores that do.
    hopeless: Tournament,
    /// One of these goes by what it was told of the candidates.
    searched: bool,
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
        self.each_rank(|ranks| ranks.list(candidate.storage.0, slot));
        slot
    }

    /// Takes a candidate off. The last one moves to its slot; gives both.
    pub(crate) fn remove(&mut self, slot: u32) -> (Candidate, Option<StorageId>) {
        let place = slot as usize;
        let gone = self.candidates.swap_remove(place);
        self.entrants.swap_remove(place);
        self.each_rank(|ranks| ranks.delist(gone.storage.0));
        let moved = self.candidates.get(place).map(|moved| moved.storage);
        if let Some(moved) = moved {
            self.entrants[place].slot = slot;
            self.each_rank(|ranks| ranks.list(moved.0, slot));
        }
        for place in [place, self.candidates.len()] {
            self.rematch(place);
        }
        (gone, moved)
    }

    pub(crate) fn set_last_access(&mut self, slot: u32, time: u64) {
        self.entrants[slot as usize].line.since = time;
        if !self.candidates[slot as usize].stale {
            self.changed(slot);
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
        self.changed(slot);
    }

    fn changed(&mut self, slot: u32) {
        let who = self.candidates[slot as usize].storage.0;
        self.each_rank(|ranks| ranks.change(who));
        self.rematch(slot as usize);
    }

    #[inline]
    fn rematch(&mut self, slot: usize) {
        if self.searched {
            self.ageless.changed(slot);
            self.hopeless.changed(slot);
        }
    }

    #[inline]
    fn each_rank(&mut self, tell: impl Fn(&mut Ranks)) {
        if !self.searched {
            return;
        }
        for ranks in [&mut self.horizon.ranks, &mut self.oldest.ranks] {
            if ranks.is_on() {
                tell(ranks);
            }
        }
    }

    /// The slot of the candidate with the smallest score; by scan unless there are `many`. All numerators are valid.
    pub(crate) fn best(&mut self, form: Form, clock: u64, salt: u64, many: usize) -> Option<u32> {
        let candidates = &self.candidates[..];
        let best = match form {
            Form::LastAccess => self.oldest(many),
            Form::Draw => scan(&Draw { candidates, salt }, &self.entrants),
            Form::Quotient { size, stale: true } => self.aging(size, clock, many),
            Form::Quotient { size, stale: false } => self.ageless(size, many),
        };
        let ranks = self.horizon.ranks.is_on() || self.oldest.ranks.is_on();
        self.searched = ranks || self.ageless.is_on() || self.hopeless.is_on();
        best
    }

    fn aging(&mut self, size: bool, clock: u64, many: usize) -> Option<u32> {
        let (candidates, entrants) = (&self.candidates[..], &self.entrants[..]);
        let order = Aging {
            candidates,
            size,
            clock,
        };
        if is_few(candidates.len(), many, self.horizon.ranks.is_on()) {
            self.horizon.ranks.stop();
            return scan(&order, entrants);
        }
        let best = self.horizon.best(&order, candidates, entrants);
        if best.is_some() {
            self.hopeless.stop();
        }
        let best = best.or_else(|| self.hopeless.best(&order, entrants, clock));
        check(&order, entrants, best);
        best
    }

    fn ageless(&mut self, size: bool, many: usize) -> Option<u32> {
        let order = Ageless {
            candidates: &self.candidates,
            size,
        };
        if is_few(self.candidates.len(), many, self.ageless.is_on()) {
            self.ageless.stop();
            return scan(&order, &self.entrants);
        }
        let best = self.ageless.best(&order, &self.entrants, 0);
        check(&order, &self.entrants, best);
        best
    }

    fn oldest(&mut self, many: usize) -> Option<u32> {
        let candidates = &self.candidates[..];
        let order = LastAccess { candidates };
        if is_few(candidates.len(), many, self.oldest.ranks.is_on()) {
            self.oldest.ranks.stop();
            return scan(&order, &self.entrants);
        }
        let best = self.oldest.best(&order, candidates, &self.entrants);
        check(&order, &self.entrants, best);
        best
    }
}

/// Whether so many are to be scanned. Once many they are many down to half of that: a count that wavers does not start over.
fn is_few(count: usize, many: usize, on: bool) -> bool {
    count < if on { many / 2 } else { many }
}

/// Every search of few and some of many pick what a scan does.
fn check<O: Order>(order: &O, entrants: &[Entrant], best: Option<u32>) {
    #[cfg(debug_assertions)]
    if entrants.len() < 200 || best.is_some_and(|slot| slot % 8 == 0) {
        debug_assert_eq!(best, scan(order, entrants));
    }
    #[cfg(not(debug_assertions))]
    let _ = (order, entrants, best);
}
