//! Random lists under random changes: the heap, the horizons, the scan and a plain reading of the reference's rule pick
//! the same.

use super::quotient::quotient;
use super::{Candidate, List};
use crate::StorageId;
use crate::eviction::policy::Form;
use crate::random::mix;
use proptest::prelude::*;

/// The ranges that candidates are drawn from.
#[derive(Clone, Copy, Debug)]
struct Draws {
    sizes: u64,
    numerators: u64,
    /// Numerators below 0 too.
    signed: bool,
    /// Steps of the clock.
    steps: u64,
    /// Everything times this.
    scale: u64,
}

/// The score as the reference computes it.
fn score(candidate: &Candidate, since: u64, form: Form, clock: u64) -> f64 {
    match form {
        Form::LastAccess => since as f64,
        Form::Draw => unreachable!("always scanned"),
        Form::Quotient { size, stale } => {
            let size = u128::from(if size { candidate.bytes } else { 1 });
            let stale = u128::from(if stale {
                clock.saturating_sub(since)
            } else {
                1
            });
            quotient(candidate.numerator, size * stale)
        }
    }
}

/// Goes through the candidates in order of place: the first 0, else the last of the smallest.
fn plain(list: &List, form: Form, clock: u64) -> Option<u32> {
    let mut slots: Vec<usize> = (0..list.len()).collect();
    slots.sort_by_key(|&slot| list.candidates[slot].place);
    let mut best: Option<(f64, usize)> = None;
    for slot in slots {
        let score = score(
            &list.candidates[slot],
            list.entrants[slot].line.since,
            form,
            clock,
        );
        if score == 0.0 {
            return Some(slot as u32);
        }
        if best.is_none_or(|(least, _)| score <= least) {
            best = Some((score, slot));
        }
    }
    best.map(|(_, slot)| slot as u32)
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(1);
        mix(self.0) % bound.max(1)
    }
}

struct Play {
    list: List,
    form: Form,
    clock: u64,
    draws: Draws,
    random: Random,
    places: u64,
}

impl Play {
    fn numerator(&mut self) -> i64 {
        let numerator = (self.random.below(self.draws.numerators) * self.draws.scale) as i64;
        if self.draws.signed && self.random.below(3) == 0 {
            -numerator
        } else {
            numerator
        }
    }

    fn add(&mut self) {
        let candidate = Candidate {
            place: self.places,
            bytes: self.random.below(self.draws.sizes) * self.draws.scale,
            numerator: 0,
            storage: StorageId(self.places as u32),
            stale: true,
        };
        self.places += 1;
        let since = self.clock - self.random.below(self.clock.min(3 * self.draws.steps) + 1);
        let slot = self.list.push(candidate, since);
        let numerator = self.numerator();
        self.list.set_numerator(slot, numerator, self.form);
    }

    fn change(&mut self) {
        let slot = self.random.below(self.list.len() as u64) as u32;
        match self.random.below(6) {
            0 | 1 => self.add(),
            _ if self.list.len() == 0 => {}
            2 => {
                let (gone, _) = self.list.remove(slot);
                if self.random.below(2) == 0 {
                    // Locked and unlocked.
                    let since = self.clock - self.random.below(self.clock.min(self.draws.steps));
                    let slot = self.list.push(
                        Candidate {
                            place: self.places,
                            ..gone
                        },
                        since,
                    );
                    self.list.set_numerator(slot, gone.numerator, self.form);
                    self.places += 1;
                }
            }
            3 => {
                let numerator = self.numerator();
                self.list.set_numerator(slot, numerator, self.form);
            }
            4 => self.list.set_last_access(slot, self.clock),
            // As a plan that is undone leaves it: accesses to come.
            _ => {
                let time = self.clock + self.random.below(self.draws.steps);
                self.list.set_last_access(slot, time);
            }
        }
    }

    fn search(&mut self, evict: bool) {
        let forms = match self.form {
            Form::Quotient { .. } => [self.form, self.form.without_staleness()],
            other => [other; 2],
        };
        for form in forms {
            let wanted = plain(&self.list, form, self.clock);
            assert_eq!(self.list.best(form, self.clock, 0, 0), wanted);
            let mut scanned = List {
                candidates: self.list.candidates.clone(),
                entrants: self.list.entrants.clone(),
                ..List::default()
            };
            assert_eq!(scanned.best(form, self.clock, 0, usize::MAX), wanted);
            if let Some(slot) = wanted.filter(|_| evict) {
                self.list.remove(slot);
            }
        }
    }

    fn advance(&mut self) {
        match self.random.below(8) {
            0 => {}
            1 => self.clock -= self.random.below(self.clock.min(4 * self.draws.steps)),
            2 => self.clock += self.random.below(1000 * self.draws.steps),
            _ => self.clock += self.random.below(self.draws.steps),
        }
        self.clock = self.clock.clamp(1, 1 << 62);
    }
}

fn draws() -> impl Strategy<Value = Draws> {
    let scale = prop_oneof![Just(1u64), Just(1), Just(1 << 20), Just((1 << 40) + 7)];
    (
        1..40u64,
        1..40u64,
        any::<bool>(),
        1..50u64,
        scale,
        any::<bool>(),
    )
        .prop_map(|(sizes, numerators, signed, steps, scale, even)| Draws {
            sizes,
            numerators,
            signed,
            steps: if even { steps * scale } else { steps },
            scale,
        })
}

fn forms() -> impl Strategy<Value = Form> {
    prop_oneof![
        3 => Just(Form::Quotient { size: true, stale: true }),
        1 => Just(Form::Quotient { size: false, stale: true }),
        1 => Just(Form::Quotient { size: true, stale: false }),
        1 => Just(Form::LastAccess),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_search_picks_the_same(
        form in forms(),
        draws in draws(),
        seed in any::<u64>(),
        count in prop_oneof![0..40usize, 900..3000usize],
        rounds in 1..60usize,
    ) {
        let mut play = Play { list: List::default(), form, clock: 1, draws, random: Random(seed), places: 0 };
        for _ in 0..count {
            play.add();
            if play.random.below(4) == 0 {
                play.clock += play.random.below(draws.steps);
            }
        }
        for round in 0..rounds {
            for _ in 0..play.random.below(12) {
                play.change();
            }
            play.advance();
            play.search(round % 3 != 0);
        }
    }
}

/// A candidate that was behind is found once its line meets that of the best, and not before.
#[test]
fn the_steeper_line_wins_once_they_meet() {
    let mut list = List::default();
    let form = Form::Quotient {
        size: true,
        stale: true,
    };
    for (place, bytes, since) in [(0, 1, 0), (1, 3, 200)] {
        let candidate = Candidate {
            place,
            bytes,
            numerator: 1,
            storage: StorageId(place as u32),
            stale: true,
        };
        let slot = list.push(candidate, since);
        list.set_numerator(slot, 1, form);
    }
    // t and 3 (t - 200) meet at 300, where the last place wins.
    let picks: Vec<_> = [201, 299, 300, 301, 250]
        .map(|clock| list.best(form, clock, 0, 0))
        .into();
    assert_eq!(picks, [Some(0), Some(0), Some(1), Some(1), Some(0)]);
}
