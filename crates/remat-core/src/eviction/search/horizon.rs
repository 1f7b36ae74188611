//! Horizons, for scores that fall with time: candidates sleep while they surely cannot be the best.
//!
//! The reciprocal of a score is a [`Line`](super::order::Line) over time. One that is below a value `V` reaches it at
//! `since + V / rate` and not before. Until then the candidate sleeps, with an alarm in a heap, and costs nothing.
//! The best candidate lies above the highest horizon, where few are awake and compared; as long as the best is there,
//! those asleep need not be looked at. When nobody is left above a horizon, the horizon is lowered, for which those
//! above the next lower one are looked at, in the end all. When too many are above a horizon it is raised. A line
//! only rises, so a candidate may go on sleeping when the clock goes back.
//!
//! After a horizon was set, a sixteenth of those above the one below are above it, and so many must have left until
//! those are looked at again: amortized O(1) for each horizon, of which there are three. A change takes O(1), an
//! alarm O(log n).

use super::order::{Aging, Entrant, Order};
use super::radix::RadixHeap;
use super::roster::Roster;
use super::scan::scan;

/// Horizons, each with those asleep below it.
const LEVELS: usize = 3;

/// The share of the way to a horizon that surely lies below it; scores are rounded by far less.
const BELOW: f64 = 1.0 - 1e-9;

/// Below every value of a finite score.
const LOWEST: f64 = f64::MIN_POSITIVE;

/// Of those above a horizon, one in so many is to be above the next.
const PART: usize = 16;

/// Sleepers are looked at once there are so many alarms a candidate: most are void.
const MOST_ALARMS: usize = 4;

/// Where a storage is. It goes on sleeping while it is no candidate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum At {
    #[default]
    Nowhere,
    /// Below the horizon of a level, until an alarm that is due then. Its other alarms are void.
    Asleep(u8, u64),
    /// Among those that are compared.
    Awake,
}

/// Candidates asleep and awake.
#[derive(Default)]
pub(super) struct Horizons {
    pub(super) roster: Roster<At>,
    awake: Vec<u32>,
    /// For each level, when to wake which storage.
    alarms: [RadixHeap; LEVELS],
    /// From the lowest up. Those asleep at a level are below its horizon, and were above the one before.
    horizons: [f64; LEVELS],
    /// A horizon is raised if more than so many are above it.
    most: [usize; LEVELS],
    gathered: Vec<u32>,
    values: Vec<f64>,
}

impl Horizons {
    /// The slot of the candidate that goes first; `None` if all scores are infinite.
    pub(super) fn best(&mut self, order: &Aging<'_>, entrants: &[Entrant]) -> Option<u32> {
        if !self.roster.is_on() {
            // All are awake; what follows puts most to sleep.
            self.gather(0, order.clock);
            self.horizons = [LOWEST; LEVELS];
            self.most = [0; LEVELS];
            self.roster.start(order.candidates());
        }
        self.catch_up(order.clock, entrants);
        if self.above(0) > MOST_ALARMS * entrants.len() {
            self.set_horizons(0, LOWEST, order, entrants);
        }
        for level in 0..LEVELS {
            if self.above(level + 1) > self.most[level] {
                self.set_horizons(level, self.horizons[level], order, entrants);
            }
        }
        for level in (0..LEVELS).rev() {
            let leader = self.leader(order, entrants);
            if leader.is_some() {
                return leader;
            }
            let floor = level.checked_sub(1).map_or(LOWEST, |l| self.horizons[l]);
            if self.horizons[level] > floor {
                self.set_horizons(level, floor, order, entrants);
            }
        }
        self.leader(order, entrants)
    }

    /// Places the candidates that changed and those whose sleep is over.
    fn catch_up(&mut self, clock: u64, entrants: &[Entrant]) {
        while let Some(storage) = self.roster.next_changed() {
            let Some(entrant) = self.roster.entrant(storage, entrants) else {
                continue;
            };
            let early_enough = match self.roster.note(storage) {
                At::Awake => true,
                At::Asleep(level, due) => due <= reaches(entrant, self.horizons[level as usize]),
                At::Nowhere => false,
            };
            if !early_enough {
                self.place(storage, entrant);
            }
        }
        for level in 0..LEVELS {
            while let Some((due, storage)) = self.alarms[level].pop(clock) {
                if leave(&mut self.roster, storage, At::Asleep(level as u8, due)) {
                    self.place_again(storage, entrants);
                }
            }
        }
    }

    fn place_again(&mut self, storage: u32, entrants: &[Entrant]) {
        if let Some(entrant) = self.roster.entrant(storage, entrants) {
            self.place(storage, entrant);
        }
    }

    /// Puts a candidate to sleep below the first horizon that it does not reach yet, or among those awake.
    fn place(&mut self, storage: u32, entrant: Entrant) {
        for (level, &horizon) in self.horizons.iter().enumerate() {
            let due = reaches(entrant, horizon);
            if due > self.alarms[level].base() {
                self.roster.set_note(storage, At::Asleep(level as u8, due));
                return self.alarms[level].push(due, storage);
            }
        }
        self.roster.set_note(storage, At::Awake);
        self.awake.push(storage);
    }

    /// Those awake and the alarms of the levels from one on, void ones too.
    fn above(&self, from: usize) -> usize {
        let asleep = self.alarms[from..].iter().map(RadixHeap::len);
        self.awake.len() + asleep.sum::<usize>()
    }

    /// The first of those awake, if it is above the highest horizon.
    fn leader(&mut self, order: &Aging<'_>, entrants: &[Entrant]) -> Option<u32> {
        let roster = &mut self.roster;
        self.awake
            .retain(|&it| roster.is_candidate(it) || leave(roster, it, At::Awake));
        let awake = self.awake.iter();
        let slot = scan(order, awake.filter_map(|&it| roster.entrant(it, entrants)))?;
        let value = order.value(entrants[slot as usize]);
        (value >= self.horizons[LEVELS - 1]).then_some(slot)
    }

    /// Sets the horizons from a level on, not below a floor, and places anew those above the one before.
    fn set_horizons(&mut self, from: usize, floor: f64, order: &Aging<'_>, entrants: &[Entrant]) {
        self.gather(from, order.clock);
        let gathered = std::mem::take(&mut self.gathered);
        let candidates = gathered.iter();
        let candidates = candidates.filter_map(|&it| self.roster.entrant(it, entrants));
        self.values.clear();
        // Not a number: an infinite score.
        let values = candidates.map(|entrant| order.value(entrant).max(0.0));
        self.values.extend(values);
        let mut floor = floor;
        for level in from..LEVELS {
            floor = nth_highest(&mut self.values, wanted(level, entrants.len())).max(floor);
            self.horizons[level] = floor;
        }
        for &storage in &gathered {
            self.place_again(storage, entrants);
        }
        self.gathered = gathered;
        for level in from..LEVELS {
            // Equals cannot be parted.
            let left = self.above(level + 1);
            self.most[level] = (4 * wanted(level, entrants.len())).max(2 * left);
        }
    }

    /// Takes out those awake and those asleep at the levels from one on, whose alarms start over from the clock.
    fn gather(&mut self, from: usize, clock: u64) {
        let (roster, gathered) = (&mut self.roster, &mut self.gathered);
        gathered.clear();
        let mut take = |storage: u32, at| {
            if leave(roster, storage, at) {
                gathered.push(storage);
            }
        };
        for storage in self.awake.drain(..) {
            take(storage, At::Awake);
        }
        for (level, alarms) in self.alarms.iter_mut().enumerate().skip(from) {
            alarms.drain(clock, |due, storage| {
                take(storage, At::Asleep(level as u8, due))
            });
        }
    }
}

/// A storage leaves the place that it has, if that is the one given; whether it did and is a candidate.
fn leave(roster: &mut Roster<At>, storage: u32, at: At) -> bool {
    let there = roster.note(storage) == at;
    if there {
        roster.set_note(storage, At::Nowhere);
    }
    there && roster.is_candidate(storage)
}

/// The clock from which an entrant may be above a horizon.
fn reaches(entrant: Entrant, horizon: f64) -> u64 {
    let wait = horizon / entrant.line.rate * BELOW;
    // Not a number where nothing keeps it: infinite rates reach any horizon at once.
    entrant.line.since.saturating_add(wait as u64)
}

/// How many of so many candidates are to be above a horizon.
fn wanted(level: usize, candidates: usize) -> usize {
    let above = candidates / PART.pow(level as u32 + 1);
    if level == LEVELS - 1 {
        above.clamp(16, 64)
    } else {
        above.max(32)
    }
}

/// The value of this rank, or the lowest; 0 if there is none.
fn nth_highest(values: &mut [f64], rank: usize) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    let rank = rank.clamp(1, values.len()) - 1;
    *values.select_nth_unstable_by(rank, |a, b| b.total_cmp(a)).1
}
