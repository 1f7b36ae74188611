//! The evictable storages of each pool and the search for the one to evict.
//!
//! A candidate's place is the time it last became evictable. Of equal scores the last wins, but the first candidate that
//! scores exactly 0 wins at once (the reference's rule). Places are numbers, so the vectors need no order. The search is
//! an exact scan over flat records with cached numerators.

use crate::graph::NONE;
use crate::journal::Entry;
use crate::neighbourhood::{Change, Counted};
use crate::policy::{mix, Form};
use crate::state::{State, Stop};
use crate::together::{WIDTH, WORTH_SHARING};
use crate::StorageId;

struct Candidate {
    place: u64,
    last_access: u64,
    bytes: u64,
    numerator: i64,
    storage: StorageId,
    /// The numerator must be computed again.
    stale: bool,
}

/// The candidates of all pools.
#[derive(Default)]
pub(crate) struct Candidates {
    pools: Vec<Vec<Candidate>>,
    /// For each pool, the storages whose candidates went stale, some more than once, some no candidates any more.
    stale: Vec<Vec<StorageId>>,
    next_place: u64,
}

impl Candidates {
    /// Every candidate's place and storage, in order of place.
    pub(crate) fn in_order(&self) -> Vec<(u64, StorageId)> {
        let mut all: Vec<_> = self
            .pools
            .iter()
            .flatten()
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
            .flatten()
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
        let storage = &mut self.graph.storages[s.index()];
        let pool = usize::from(storage.pool);
        let pools = &mut self.candidates.pools;
        if pool >= pools.len() {
            pools.resize_with(pool + 1, Vec::new);
            self.candidates.stale.resize_with(pool + 1, Vec::new);
        }
        storage.slot = pools[pool].len() as u32;
        pools[pool].push(Candidate {
            place,
            last_access: storage.last_access,
            bytes: storage.bytes,
            numerator: 0,
            storage: s,
            stale: true,
        });
        self.candidates.stale[pool].push(s);
    }

    /// Takes a candidate off; returns its place.
    pub(crate) fn remove(&mut self, s: StorageId) -> u64 {
        let storage = &mut self.graph.storages[s.index()];
        let list = &mut self.candidates.pools[usize::from(storage.pool)];
        let slot = std::mem::replace(&mut storage.slot, NONE);
        let gone = list.swap_remove(slot as usize);
        if let Some(moved) = list.get(slot as usize) {
            self.graph.storages[moved.storage.index()].slot = slot;
        }
        gone.place
    }

    pub(crate) fn set_last_access(&mut self, s: StorageId, time: u64) {
        let storage = &mut self.graph.storages[s.index()];
        storage.last_access = time;
        if storage.slot != NONE {
            self.candidates.pools[usize::from(storage.pool)][storage.slot as usize].last_access =
                time;
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
            let candidate = &mut self.candidates.pools[pool][storage.slot as usize];
            if !std::mem::replace(&mut candidate.stale, true) {
                self.candidates.stale[pool].push(s);
            }
        }
    }

    /// Evicts candidates until so many more bytes fit (DTR figure 1; rule 3 of the reference).
    pub(crate) fn make_room(&mut self, pool: u8, bytes: u64) -> Result<(), Stop> {
        while self.exceeds(pool, bytes) {
            let victim = self.victim(pool).ok_or(Stop::Short(pool))?;
            self.counters.evictions += 1;
            self.evict(victim);
        }
        Ok(())
    }

    /// Whether a pool's budget does not hold so many more bytes.
    pub(crate) fn exceeds(&mut self, pool: u8, bytes: u64) -> bool {
        if self.unlimited {
            return false;
        }
        let pool = self.pool(pool);
        pool.budget
            .is_some_and(|budget| pool.memory.saturating_add(bytes) > budget)
    }

    /// The candidate with the smallest score.
    fn victim(&mut self, pool: u8) -> Option<StorageId> {
        let index = usize::from(pool);
        let count = self.candidates.pools.get(index).map_or(0, Vec::len);
        if count == 0 {
            return None;
        }
        if self.ahead.on {
            return self.victim_ahead(pool);
        }
        let accesses = self.refresh_numerators(index) + count as u64;
        let salt = self.salt();
        let list = &self.candidates.pools[index];
        let winner = match self.rule.form {
            Form::LastAccess => pick(list, |candidate| candidate.last_access as f64),
            Form::Draw => pick(list, |candidate| {
                (mix(salt ^ candidate.place) >> 11) as f64 + 1.0
            }),
            Form::Quotient { size, stale } => {
                let clock = self.clock;
                pick_quotient(list, |candidate| {
                    let size = if size { candidate.bytes } else { 1 };
                    let stale = if stale {
                        clock.saturating_sub(candidate.last_access)
                    } else {
                        1
                    };
                    (size, stale)
                })
            }
        };
        self.journal.write(Entry::Searched(count as u32, accesses));
        self.counters.score_evaluations += count as u64;
        self.counters.metadata_accesses += accesses;
        winner
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
        let mut told = std::mem::take(&mut self.candidates.stale[pool]);
        let mut stale = std::mem::take(&mut self.stale);
        stale.clear();
        for s in told.drain(..) {
            let storage = &self.graph.storages[s.index()];
            let listed = storage.slot != NONE && usize::from(storage.pool) == pool;
            if listed && self.candidates.pools[pool][storage.slot as usize].stale {
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
        let accesses = self.count_afresh(&stale);
        self.stale = stale;
        #[cfg(debug_assertions)]
        self.check_numerators(pool);
        accesses
    }

    fn count_afresh(&mut self, stale: &[StorageId]) -> u64 {
        let mut accesses = 0;
        if stale.len() < WORTH_SHARING || !self.rule.numerator.is_whole() {
            for &s in stale {
                let counted = self.numerator(s);
                accesses += counted.seen;
                self.keep_numerator(s, &counted);
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
        self.journal.note_scored(s);
        self.copy_numerator(s);
    }

    /// To where the search looks.
    fn copy_numerator(&mut self, s: StorageId) {
        let storage = &self.graph.storages[s.index()];
        let pool = &mut self.candidates.pools[usize::from(storage.pool)];
        let candidate = &mut pool[storage.slot as usize];
        candidate.numerator = storage.numerator;
        if self.ages_together {
            candidate.last_access = storage.last_access.max(storage.latest_around);
        }
        candidate.stale = false;
    }

    /// Cached numerators are those computed afresh.
    #[cfg(debug_assertions)]
    fn check_numerators(&mut self, pool: usize) {
        // Enough for the property tests, others each time; more would make debug runs crawl.
        const MOST: usize = 8;
        let count = self.candidates.pools[pool].len();
        for place in 0..count.min(MOST) {
            let slot = (self.counters.score_evaluations as usize + place) % count;
            let candidate = &self.candidates.pools[pool][slot];
            let (s, cached) = (candidate.storage, candidate.numerator);
            debug_assert_eq!(
                cached,
                self.numerator(s).numerator,
                "the cached numerator of {s:?} {:?}",
                self.rule
            );
        }
    }
}

/// The best so far of a scan.
struct Best {
    score: f64,
    place: u64,
    storage: Option<StorageId>,
}

impl Best {
    fn new() -> Best {
        Best {
            score: f64::INFINITY,
            place: 0,
            storage: None,
        }
    }

    /// Of equal scores the last wins, of zeros the first, and a zero wins over everything.
    fn offer(&mut self, score: f64, candidate: &Candidate) {
        let better = match (score == 0.0, self.score == 0.0 && self.storage.is_some()) {
            (true, true) => candidate.place < self.place,
            (true, false) => true,
            (false, true) => false,
            (false, false) => {
                score < self.score
                    || (score == self.score
                        && (self.storage.is_none() || candidate.place > self.place))
            }
        };
        if better {
            *self = Best {
                score,
                place: candidate.place,
                storage: Some(candidate.storage),
            };
        }
    }
}

fn pick(list: &[Candidate], score: impl Fn(&Candidate) -> f64) -> Option<StorageId> {
    let mut best = Best::new();
    for candidate in list {
        let score = score(candidate);
        if score <= best.score {
            best.offer(score, candidate);
        }
    }
    best.storage
}

/// Like [`pick`] for quotients: a rounded product sorts most out, the exact quotient decides.
fn pick_quotient(
    list: &[Candidate],
    factors: impl Fn(&Candidate) -> (u64, u64),
) -> Option<StorageId> {
    let mut best = Best::new();
    // No candidate whose quotient lies above this can win; the roundings of a product cost less than 1e-15 of it.
    let mut ceiling = f64::INFINITY;
    for candidate in list {
        let (size, stale) = factors(candidate);
        // Sizes and times are below 2^63: signed conversions are a single instruction.
        let (size_near, stale_near) = (size as i64 as f64, stale as i64 as f64);
        if candidate.numerator as f64 > ceiling * (size_near * stale_near) {
            continue;
        }
        best.offer(
            quotient(candidate.numerator, u128::from(size) * u128::from(stale)),
            candidate,
        );
        ceiling = best.score + best.score.abs() * 1e-14;
    }
    best.storage
}

/// The double nearest to a quotient of integers; infinite for a denominator of 0.
fn quotient(numerator: i64, denominator: u128) -> f64 {
    const EXACT: u128 = 1 << 53;
    if denominator == 0 {
        return f64::INFINITY;
    }
    let magnitude = u128::from(numerator.unsigned_abs());
    if magnitude <= EXACT && denominator <= EXACT {
        // By way of 64 bits, for which there is an instruction.
        return numerator as f64 / denominator as i64 as f64;
    }
    if magnitude == 0 {
        return 0.0;
    }
    let sign = if numerator < 0 { -1.0 } else { 1.0 };
    sign * nearest(magnitude, denominator)
}

/// Long division to 55 significant bits and a sticky bit, rounded once to the 53 of a double.
fn nearest(numerator: u128, denominator: u128) -> f64 {
    let mut exponent = denominator.leading_zeros() as i32 - numerator.leading_zeros() as i32;
    // Both with the top bit in the same place; the quotient then lies in (1/2, 2).
    let mut rest = numerator << numerator.leading_zeros();
    let divisor = denominator << denominator.leading_zeros();
    let mut bits: u64 = 0;
    if rest < divisor {
        exponent -= 1;
    } else {
        rest -= divisor;
        bits = 1;
    }
    let mut wanted = if bits == 1 { 54 } else { 55 };
    while wanted > 0 {
        let carry = rest >> 127 == 1;
        rest <<= 1;
        bits <<= 1;
        if carry || rest >= divisor {
            rest = rest.wrapping_sub(divisor);
            bits |= 1;
        }
        wanted -= 1;
    }
    let bits = (bits << 1) | u64::from(rest != 0);
    bits as f64 * 2f64.powi(exponent - 55)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotients_are_rounded_once() {
        assert_eq!(quotient(1, 3), 1.0 / 3.0);
        assert_eq!(quotient(-7, 2), -3.5);
        assert_eq!(quotient(5, 0), f64::INFINITY);
        assert_eq!(quotient(0, 1 << 100), 0.0);
        // 2^53 + 1 is not a double; a quotient by way of doubles would be 1.
        let odd = (1u128 << 53) + 1;
        assert_eq!(quotient((1 << 53) + 1, odd), 1.0);
        assert_eq!(quotient(3 * ((1 << 53) + 1), odd), 3.0);
        assert_eq!(quotient(1 << 53, odd), 1.0 - f64::EPSILON / 2.0);
        assert_eq!(quotient(i64::MAX, 1 << 60), 8.0);
        assert_eq!(quotient(1, 1 << 80), 2f64.powi(-80));
    }
}
