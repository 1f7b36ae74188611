//! The evictable storages of each pool, and what their scores are made of.
//!
//! A candidate's place is the time it last became evictable. Of equal scores the last wins, but the first candidate that
//! scores exactly 0 wins at once (the reference's rule). Places are numbers, so the lists need no order. Numerators are
//! cached, and counted afresh before the next search (`search/`).

use crate::eviction::multi_source::{WIDTH, WORTH_SHARING};
use crate::eviction::neighbourhood::{Change, Counted};
use crate::eviction::policy::{Form, Numerator};
use crate::eviction::search::{Candidate, List, MANY};
use crate::graph::NONE;
use crate::journal::Entry;
use crate::transaction::state::{State, Stop};
use crate::StorageId;

/// Bounds of scores are made of so many ancestors (`cargo run --release -p remat-sim --example coop`).
const FEW: u64 = 16;

/// The candidates of all pools.
pub(crate) struct Candidates {
    pools: Vec<List>,
    /// For each pool, the storages whose candidates went stale, some more than once, some no candidates any more.
    stale: Vec<Vec<StorageId>>,
    next_place: u64,
    /// Ancestors looked at, at most, for the bound by which windows are compared at first.
    few: u64,
    /// Numerators of candidates may be bounds.
    bounded: bool,
    /// Fewer candidates of a pool than this are scanned.
    pub(crate) many: usize,
}

impl Default for Candidates {
    fn default() -> Candidates {
        Candidates {
            pools: Vec::new(),
            stale: Vec::new(),
            next_place: 0,
            few: FEW,
            bounded: false,
            many: MANY,
        }
    }
}

impl Candidates {
    /// Fewer candidates than this are scanned; if any number is, bounds are not used either, and if none is, they are of one ancestor.
    pub(crate) fn search_exhaustively_below(&mut self, candidates: usize) {
        self.many = candidates;
        self.few = match candidates {
            0 => 1,
            usize::MAX => u64::MAX,
            _ => FEW,
        };
    }

    /// Every candidate's place and storage, in order of place.
    pub(crate) fn in_order(&self) -> Vec<(u64, StorageId)> {
        let mut all: Vec<_> = self
            .pools
            .iter()
            .flat_map(List::candidates)
            .map(|candidate| (candidate.place, candidate.storage))
            .collect();
        all.sort_unstable();
        all
    }

    /// The places and storages of one pool's candidates, in no order.
    pub(crate) fn of(&self, pool: u8) -> impl Iterator<Item = (u64, StorageId)> + '_ {
        self.pools
            .get(usize::from(pool))
            .into_iter()
            .flat_map(List::candidates)
            .map(|candidate| (candidate.place, candidate.storage))
    }

    pub(crate) fn next_place(&self) -> u64 {
        self.next_place
    }
}

impl State {
    /// Appends a storage that is not a candidate.
    pub(crate) fn append(&mut self, s: StorageId) {
        let place = self.candidates.next_place;
        self.candidates.next_place += 1;
        self.relist(s, place);
    }

    /// Undoes the latest [`append`](Self::append).
    pub(crate) fn unlist(&mut self, s: StorageId) {
        self.remove(s);
        self.candidates.next_place -= 1;
    }

    /// Puts a storage back at a place that it had.
    pub(crate) fn relist(&mut self, s: StorageId, place: u64) {
        // While it was no candidate, nobody counted it whole.
        self.candidates.bounded |= self.graph.storages[s.index()].bounded;
        let pool = usize::from(self.graph.storages[s.index()].pool);
        let pools = &mut self.candidates.pools;
        if pool >= pools.len() {
            pools.resize_with(pool + 1, List::default);
            self.candidates.stale.resize_with(pool + 1, Vec::new);
        }
        let bytes = self.bytes_with_gaps(s);
        let storage = &mut self.graph.storages[s.index()];
        let candidate = Candidate {
            place,
            bytes,
            numerator: 0,
            storage: s,
            stale: true,
        };
        storage.slot = self.candidates.pools[pool].push(candidate, storage.last_access);
        self.candidates.stale[pool].push(s);
    }

    /// Takes a candidate off; returns its place.
    pub(crate) fn remove(&mut self, s: StorageId) -> u64 {
        let storage = &mut self.graph.storages[s.index()];
        let list = &mut self.candidates.pools[usize::from(storage.pool)];
        let slot = std::mem::replace(&mut storage.slot, NONE);
        let (gone, moved) = list.remove(slot);
        if let Some(moved) = moved {
            self.graph.storages[moved.index()].slot = slot;
        }
        gone.place
    }

    pub(crate) fn set_last_access(&mut self, s: StorageId, time: u64) {
        let storage = &mut self.graph.storages[s.index()];
        storage.last_access = time;
        if storage.slot != NONE {
            self.candidates.pools[usize::from(storage.pool)].set_last_access(storage.slot, time);
        }
        if self.ages_together {
            match self.graph.storages[s.index()].resident {
                true => self.void_numerator(s),
                false => self.void_neighbourhood(s, Change::Other),
            }
        }
    }

    /// The surroundings or the cost of a storage changed.
    pub(crate) fn void_numerator(&mut self, s: StorageId) {
        let storage = &mut self.graph.storages[s.index()];
        storage.scored = false;
        if storage.slot != NONE {
            let pool = usize::from(storage.pool);
            let candidate = self.candidates.pools[pool].candidate(storage.slot);
            if !std::mem::replace(&mut candidate.stale, true) {
                self.candidates.stale[pool].push(s);
            }
        }
    }

    /// Evicts candidates until so many more bytes fit; in an arena blocks are found one by one ([`arena`](crate::arena)) (DTR figure 1; rule 3 of the reference).
    pub(crate) fn make_room(&mut self, pool: u8, bytes: u64) -> Result<(), Stop> {
        while self.exceeds(pool, bytes) {
            let victim = self.victim(pool).ok_or(Stop::Short(pool))?;
            self.counters.evictions += 1;
            self.evict(victim);
        }
        Ok(())
    }

    /// The size that a candidate is scored by has changed.
    pub(crate) fn set_scored_bytes(&mut self, s: StorageId, bytes: u64) {
        let storage = &self.graph.storages[s.index()];
        if storage.slot != NONE {
            let list = &mut self.candidates.pools[usize::from(storage.pool)];
            list.set_bytes(storage.slot, bytes, self.rule.form);
        }
    }

    /// Whether a pool's budget does not hold so many more bytes.
    pub(crate) fn exceeds(&mut self, pool: u8, bytes: u64) -> bool {
        if self.unlimited || self.arenas.has(pool) {
            return false;
        }
        let pool = self.pool(pool);
        pool.budget
            .is_some_and(|budget| pool.memory.saturating_add(bytes) > budget)
    }

    /// The candidate with the smallest score. Counted as the paper does: an exhaustive search, whatever the search looked at. In
    /// arenas ancestors are counted that were looked at: of most candidates a few, for a bound.
    pub(crate) fn victim(&mut self, pool: u8) -> Option<StorageId> {
        let index = usize::from(pool);
        let count = self.candidates.pools.get(index).map_or(0, List::len);
        if count == 0 {
            return None;
        }
        if self.ahead.on {
            return self.victim_ahead(pool);
        }
        // Plans for counted bytes are weighed by what is known at their end, and so by whole costs.
        let mut accesses = count as u64;
        accesses += match self.arenas.has(pool) {
            true => self.bound_numerators(pool),
            false => self.refresh_numerators(index),
        };
        let salt = self.salt();
        // Who is first by bounds, and has none, is first: all others score as much as by their bounds or more.
        let winner = loop {
            let winner = self.best(index, salt)?;
            match self.settle_numerator(winner) {
                Some(seen) => accesses += seen,
                None => break winner,
            }
        };
        self.journal.write(Entry::Searched(count as u32, accesses));
        self.counters.searches += 1;
        self.counters.score_evaluations += count as u64;
        self.counters.metadata_accesses += accesses;
        Some(winner)
    }

    /// What goes before a search: valid numerators.
    pub(crate) fn prepare_search(&mut self, pool: u8) {
        if usize::from(pool) < self.candidates.pools.len() {
            self.refresh_numerators(usize::from(pool));
        }
    }

    /// The search alone; what it finds is evicted next, unless it is drawn.
    pub(crate) fn foresee_victim(&mut self, pool: u8) -> Option<StorageId> {
        self.prepare_search(pool);
        (usize::from(pool) < self.candidates.pools.len())
            .then(|| self.best(usize::from(pool), 0))
            .flatten()
    }

    /// Of candidates whose numerators are valid.
    fn best(&mut self, pool: usize, salt: u64) -> Option<StorageId> {
        let list = &mut self.candidates.pools[pool];
        let slot = list.best(self.rule.form, self.clock, salt, self.candidates.many)?;
        Some(list.candidate(slot).storage)
    }

    fn salt(&mut self) -> u64 {
        if self.rule.form != Form::Draw {
            return 0;
        }
        self.journal.write(Entry::Drew(self.draws.0));
        self.draws.next()
    }

    /// Brings the cached numerators of a pool's candidates up to date; returns how many other storages were looked at.
    fn refresh_numerators(&mut self, pool: usize) -> u64 {
        let mut stale = self.take_stale(pool);
        if std::mem::take(&mut self.candidates.bounded) {
            let all = self.candidates.pools.iter().flat_map(List::candidates);
            let bounded = |s: &StorageId| self.graph.storages[s.index()].bounded;
            stale.extend(all.map(|candidate| candidate.storage).filter(bounded));
            stale.sort_unstable();
            stale.dedup();
        }
        let accesses = self.count_afresh(&stale);
        self.stale = stale;
        #[cfg(debug_assertions)]
        self.check_numerators(pool);
        accesses
    }

    /// Storages whose numerators have to be counted, each once. Those that are valid are copied to where the search looks.
    fn take_stale(&mut self, pool: usize) -> Vec<StorageId> {
        let mut told = std::mem::take(&mut self.candidates.stale[pool]);
        let mut stale = std::mem::take(&mut self.stale);
        stale.clear();
        for s in told.drain(..) {
            let storage = &self.graph.storages[s.index()];
            let listed = storage.slot != NONE && usize::from(storage.pool) == pool;
            if listed && self.candidates.pools[pool].candidate(storage.slot).stale {
                match storage.scored {
                    true => self.copy_numerator(s),
                    false => stale.push(s),
                }
            }
        }
        self.candidates.stale[pool] = told;
        // Named twice, counted once.
        stale.sort_unstable();
        stale.dedup();
        stale
    }

    /// What goes before a comparison by bounds: a valid numerator or a lower bound of it for each candidate. Returns how many other
    /// storages were looked at.
    pub(crate) fn bound_numerators(&mut self, pool: u8) -> u64 {
        let (pool, few) = (usize::from(pool), self.candidates.few);
        if pool >= self.candidates.pools.len() {
            return 0;
        }
        // Bounds of costs are none of ages.
        if self.rule.numerator != Numerator::NearAncestors || self.ages_together {
            return self.refresh_numerators(pool);
        }
        let stale = self.take_stale(pool);
        let mut accesses = 0;
        for &s in &stale {
            let counted = self.numerator_of_few(s, few);
            accesses += counted.seen;
            self.keep_numerator(s, &counted);
            if counted.seen >= few {
                self.graph.storages[s.index()].bounded = true;
                self.candidates.bounded = true;
            }
        }
        self.stale = stale;
        #[cfg(debug_assertions)]
        self.check_numerators(pool);
        accesses
    }

    /// What bringing a candidate back costs as things are, however it was chosen: with an eye to what is read next nothing is counted.
    pub(crate) fn cost_now(&mut self, s: StorageId) -> i64 {
        let storage = &self.graph.storages[s.index()];
        if !storage.scored || storage.bounded {
            self.count_whole(s);
        }
        self.graph.storages[s.index()].numerator
    }

    /// Counts the whole numerator where there is a bound; how many other storages were looked at then.
    pub(crate) fn settle_numerator(&mut self, s: StorageId) -> Option<u64> {
        let bounded = self.graph.storages[s.index()].bounded;
        bounded.then(|| self.count_whole(s))
    }

    /// Counts a candidate's numerator afresh and keeps it; how many other storages were looked at.
    fn count_whole(&mut self, s: StorageId) -> u64 {
        let counted = self.numerator(s);
        self.keep_numerator(s, &counted);
        counted.seen
    }

    fn count_afresh(&mut self, stale: &[StorageId]) -> u64 {
        let mut accesses = 0;
        if stale.len() < WORTH_SHARING || !self.rule.numerator.is_whole() {
            for &s in stale {
                accesses += self.count_whole(s);
            }
            return accesses;
        }
        for some in stale.chunks(WIDTH) {
            self.numerators(some, |state, s, counted| {
                accesses += counted.seen;
                state.keep_numerator(s, &counted);
            });
        }
        accesses
    }

    fn keep_numerator(&mut self, s: StorageId, counted: &Counted) {
        let storage = &mut self.graph.storages[s.index()];
        storage.numerator = counted.numerator;
        storage.latest_around = counted.latest;
        storage.scored = true;
        storage.bounded = false;
        self.journal.note_scored(s);
        self.copy_numerator(s);
    }

    /// To where the search looks.
    fn copy_numerator(&mut self, s: StorageId) {
        let storage = &self.graph.storages[s.index()];
        let list = &mut self.candidates.pools[usize::from(storage.pool)];
        list.set_numerator(storage.slot, storage.numerator, self.rule.form);
        if self.ages_together {
            let latest = storage.last_access.max(storage.latest_around);
            list.set_last_access(storage.slot, latest);
        }
    }

    /// Cached numerators are those computed afresh.
    #[cfg(debug_assertions)]
    fn check_numerators(&mut self, pool: usize) {
        // Enough for the property tests, others each time; more would make debug runs crawl.
        const MOST: usize = 8;
        let count = self.candidates.pools[pool].len();
        for place in 0..count.min(MOST) {
            let slot = (self.counters.score_evaluations as usize + place) % count;
            let candidate = self.candidates.pools[pool].candidates()[slot];
            let (s, cached) = (candidate.storage, candidate.numerator);
            let bounded = self.graph.storages[s.index()].bounded;
            let fresh = self.numerator(s).numerator;
            debug_assert!(
                cached == fresh || bounded && cached < fresh,
                "the cached numerator of {s:?} is {cached}, not {fresh} {:?}",
                self.rule
            );
        }
    }
}
