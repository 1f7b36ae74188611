//! The search for the candidate with the smallest score, and the numerators that it goes by.

use super::multi_source::{WIDTH, WORTH_SHARING};
use super::neighbourhood::Until;
use super::numerator::Counted;
use super::policy::{Evicted, Form};
use super::scores::Eviction;
use crate::graph::{Graph, Precision};
use crate::ids::StorageId;
use crate::journal::{Entry, Journal};

/// A candidate to evict, and what finding it took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Victim {
    pub(crate) storage: StorageId,
    /// Scores evaluated by an exhaustive search, whatever the search looked at.
    pub(crate) evaluated: u32,
    /// Storages looked at.
    pub(crate) accesses: u64,
}

impl Eviction {
    /// Fewer candidates than this are scanned; if any number is, bounds are not used either, and if none is, they are
    /// of one ancestor.
    pub(crate) fn search_exhaustively_below(&mut self, candidates: usize) {
        self.candidates.many = candidates;
        if let Some(ancestors) = &mut self.bounds.ancestors {
            match candidates {
                0 => *ancestors = 1,
                usize::MAX => *ancestors = u64::MAX,
                _ => {}
            }
        }
    }

    /// The candidate with the smallest score; that which is read last where the [uses to come](super::next_use) are
    /// known.
    pub(crate) fn victim(
        &mut self,
        graph: &mut Graph,
        journal: &mut Journal,
        device: u8,
        clock: u64,
    ) -> Option<Victim> {
        let count = self.candidates.count(device);
        if count == 0 {
            return None;
        }
        if self.next_uses.are_known() {
            return self.furthest(graph, device, clock);
        }
        let mut accesses = count as u64 + self.floor_numerators(graph, journal, device, clock);
        let salt = self.salt(journal);
        // The first by bounds is the first if its own is none: all others score as much as by their bounds or more.
        loop {
            let storage = self.candidates.best(device, clock, salt)?;
            let Some(seen) = self.settle_numerator(graph, journal, storage) else {
                return Some(Victim {
                    storage,
                    evaluated: count as u32,
                    accesses,
                });
            };
            accesses += seen;
        }
    }

    /// The candidate that the plan reads last.
    fn furthest(&self, graph: &Graph, device: u8, clock: u64) -> Option<Victim> {
        let candidates = &self.candidates;
        let (storage, evaluated) = self.next_uses.furthest(graph, candidates, device, clock)?;
        Some(Victim {
            storage,
            evaluated,
            accesses: u64::from(evaluated),
        })
    }

    /// Lists a storage as a candidate that is scored by so many bytes: at a place that it had, or as the latest.
    pub(crate) fn list(&mut self, graph: &mut Graph, s: StorageId, place: Option<u64>, bytes: u64) {
        // While it was no candidate, nobody counted it whole.
        self.bounds.any |= graph[s].precision != Precision::Whole;
        match place {
            Some(place) => self.candidates.relist(graph, s, place, bytes),
            None => self.candidates.append(graph, s, bytes),
        }
    }

    /// Brings up to date what a search goes by.
    pub(crate) fn prepare_search(&mut self, graph: &mut Graph, journal: &mut Journal, device: u8) {
        if self.candidates.has(device) {
            self.refresh_numerators(graph, journal, device);
        }
    }

    fn salt(&mut self, journal: &mut Journal) -> u64 {
        if self.candidates.form != Form::Draw {
            return 0;
        }
        journal.write(Entry::Drew(self.draws.0));
        self.draws.next()
    }

    /// Brings the cached numerators of a device's candidates up to date; returns how many other storages were looked
    /// at.
    fn refresh_numerators(&mut self, graph: &mut Graph, journal: &mut Journal, device: u8) -> u64 {
        let mut stale = self.take_stale(graph, device);
        if std::mem::take(&mut self.bounds.any) {
            let all = self.candidates.all().map(|candidate| candidate.storage);
            stale.extend(all.filter(|&s| graph[s].precision != Precision::Whole));
            stale.sort_unstable();
            stale.dedup();
        }
        let accesses = self.count_afresh(graph, journal, &stale);
        self.stale = stale;
        #[cfg(debug_assertions)]
        self.check_numerators(graph, device);
        accesses
    }

    /// Storages whose numerators have to be counted, each once. Those that are valid are copied to where the search
    /// looks.
    fn take_stale(&mut self, graph: &mut Graph, device: u8) -> Vec<StorageId> {
        let mut told = self.candidates.take_stale(device);
        let mut stale = std::mem::take(&mut self.stale);
        stale.clear();
        for s in told.drain(..) {
            if !self.candidates.is_stale(graph, s, device) {
                continue;
            }
            if graph[s].scored {
                self.copy_numerator(graph, s);
            } else {
                stale.push(s);
            }
        }
        self.candidates.give_back_stale(device, told);
        // Named twice, counted once.
        stale.sort_unstable();
        stale.dedup();
        stale
    }

    /// [`bound_numerators`](Self::bound_numerators) for a single victim: a candidate that is much dearer than the
    /// latest ones will not lead, so no more of its cost is counted than tells that.
    fn floor_numerators(
        &mut self,
        graph: &mut Graph,
        journal: &mut Journal,
        device: u8,
        clock: u64,
    ) -> u64 {
        let Some(few) = self.bounds.ancestors else {
            return self.refresh_numerators(graph, journal, device);
        };
        let stale = self.take_stale(graph, device);
        let mut accesses = 0;
        for &s in &stale {
            let until = Until {
                seen: few,
                enough: self.candidates.dear(graph, s, clock),
            };
            accesses += self.count_bound(graph, journal, s, until);
        }
        self.stale = stale;
        #[cfg(debug_assertions)]
        self.check_numerators(graph, device);
        accesses
    }

    /// Brings a valid numerator or a lower bound of it to each candidate; returns how many other storages were looked
    /// at.
    pub(crate) fn bound_numerators(
        &mut self,
        graph: &mut Graph,
        journal: &mut Journal,
        device: u8,
    ) -> u64 {
        if !self.candidates.has(device) {
            return 0;
        }
        let Some(few) = self.bounds.ancestors else {
            return self.refresh_numerators(graph, journal, device);
        };
        let stale = self.take_stale(graph, device);
        let mut accesses = 0;
        for &s in &stale {
            accesses += self.count_bound(graph, journal, s, Until::seen(few));
        }
        self.stale = stale;
        #[cfg(debug_assertions)]
        self.check_numerators(graph, device);
        accesses
    }

    /// The cost of bringing a candidate back as things are. A candidate that was chosen by the uses to come has none
    /// counted.
    pub(crate) fn cost_now(
        &mut self,
        graph: &mut Graph,
        journal: &mut Journal,
        s: StorageId,
    ) -> i64 {
        let storage = &graph[s];
        if !storage.scored || storage.precision != Precision::Whole {
            self.count_whole(graph, journal, s);
        }
        graph[s].numerator
    }

    /// Counts more of a numerator of which there is a bound; how many other storages were looked at then.
    pub(crate) fn settle_numerator(
        &mut self,
        graph: &mut Graph,
        journal: &mut Journal,
        s: StorageId,
    ) -> Option<u64> {
        match (graph[s].precision, self.bounds.ancestors) {
            (Precision::Whole, _) => None,
            (Precision::Enough, Some(few)) => {
                Some(self.count_bound(graph, journal, s, Until::seen(few)))
            }
            _ => Some(self.count_whole(graph, journal, s)),
        }
    }

    /// Counts a candidate's numerator or a bound of it; how many other storages were looked at.
    fn count_bound(
        &mut self,
        graph: &mut Graph,
        journal: &mut Journal,
        s: StorageId,
        until: Until,
    ) -> u64 {
        let counted = self.count(graph, s, until);
        self.keep_numerator(graph, journal, s, &counted);
        graph[s].precision = if counted.seen >= until.seen {
            Precision::Few
        } else if counted.numerator >= until.enough {
            Precision::Enough
        } else {
            Precision::Whole
        };
        self.bounds.any |= graph[s].precision != Precision::Whole;
        counted.seen
    }

    fn count(&mut self, graph: &mut Graph, s: StorageId, until: Until) -> Counted {
        self.scored = true;
        self.numerators.count(graph, &mut self.components, s, until)
    }

    /// Counts a candidate's numerator afresh and keeps it; how many other storages were looked at.
    fn count_whole(&mut self, graph: &mut Graph, journal: &mut Journal, s: StorageId) -> u64 {
        let counted = self.count(graph, s, Until::END);
        self.keep_numerator(graph, journal, s, &counted);
        counted.seen
    }

    fn count_afresh(
        &mut self,
        graph: &mut Graph,
        journal: &mut Journal,
        stale: &[StorageId],
    ) -> u64 {
        if let Some(evicted) = self.shares_walks().filter(|_| stale.len() >= WORTH_SHARING) {
            return self.count_together(graph, journal, stale, &evicted);
        }
        let each = stale.iter();
        each.map(|&s| self.count_whole(graph, journal, s)).sum()
    }

    /// Numerators that depend on the evicted neighbourhood however far it goes are counted by walks that share a pass.
    fn shares_walks(&self) -> Option<Evicted> {
        let evicted = self.numerators.kind.evicted();
        evicted.filter(|evicted| evicted.limit == u64::MAX)
    }

    fn count_together(
        &mut self,
        graph: &mut Graph,
        journal: &mut Journal,
        stale: &[StorageId],
        evicted: &Evicted,
    ) -> u64 {
        self.scored = true;
        let mut accesses = 0;
        let mut counted = std::mem::take(&mut self.counted);
        for some in stale.chunks(WIDTH) {
            counted.clear();
            self.numerators
                .count_many(graph, evicted, some, |_, s, count| counted.push((s, count)));
            for (s, count) in &counted {
                accesses += count.seen;
                self.keep_numerator(graph, journal, *s, count);
            }
        }
        self.counted = counted;
        accesses
    }

    fn keep_numerator(
        &mut self,
        graph: &mut Graph,
        journal: &mut Journal,
        s: StorageId,
        counted: &Counted,
    ) {
        let storage = &mut graph[s];
        storage.numerator = counted.numerator;
        storage.latest_around = counted.latest;
        storage.scored = true;
        storage.precision = Precision::Whole;
        journal.note_scored(s);
        self.copy_numerator(graph, s);
    }

    /// To where the search looks.
    fn copy_numerator(&mut self, graph: &Graph, s: StorageId) {
        self.candidates.copy_numerator(graph, s);
        if self.ages_with_neighbourhood() {
            let storage = &graph[s];
            let latest = storage.last_access.max(storage.latest_around);
            self.candidates.set_last_access(graph, s, latest);
        }
    }

    /// Cached numerators are those computed afresh.
    #[cfg(debug_assertions)]
    fn check_numerators(&mut self, graph: &mut Graph, device: u8) {
        // Enough for the property tests, others each time; more would make debug runs crawl.
        const MOST: usize = 8;
        let count = self.candidates.count(device);
        self.numerators.peeks = true;
        for place in 0..count.min(MOST) {
            let slot = (self.candidates.next_place() as usize + place) % count;
            let candidate = self.candidates.of(device)[slot];
            let (s, cached) = (candidate.storage, candidate.numerator);
            let bounded = graph[s].precision != Precision::Whole;
            let fresh = self.count(graph, s, Until::END).numerator;
            debug_assert!(
                cached == fresh || bounded && cached < fresh,
                "the cached numerator of {s:?} is {cached}, not {fresh}: {:?}",
                self.numerators.kind
            );
        }
        self.numerators.peeks = false;
    }
}
