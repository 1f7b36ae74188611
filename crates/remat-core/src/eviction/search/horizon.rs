//! The search by rising lines: horizons, and for each candidate below one the time at which it may reach it.
//!
//! A line that is below a value `V` reaches it at `since + V / rate` and not before, so until then the candidate sleeps in a
//! timing wheel and costs nothing. The best candidate lies above the highest horizon, where few are awake and compared; as
//! long as the best is there, those asleep need not be looked at. When nobody is left above a horizon it is lowered, for which
//! those above the next lower one are looked at, in the end all. When too many are above a horizon it is raised. A line only
//! rises, so what sleeps may go on sleeping when the clock goes back.
//!
//! After a horizon was set a sixteenth of those above the one below are above it, and so many must have gone until those are
//! looked at again: amortized O(1) for each horizon, of which there are three. A change takes O(1), and waking up a level of a wheel at a
//! time O(log of the time slept), mostly two or three.

use super::order::{Aging, Entrant, Order};
use super::ranks::{At, Ranks, WHEELS};
use super::Candidate;

/// How much of the way to a horizon surely lies below it, by far more than scores are rounded.
const BELOW: f64 = 1.0 - 1e-9;

/// Below every value of a finite score.
const LOWEST: f64 = f64::MIN_POSITIVE;

/// Of those above a horizon, one in so many is to be above the next.
const PART: usize = 16;

/// The clock from which an entrant may be above a horizon.
fn due(entrant: Entrant, horizon: f64) -> u64 {
    let wait = horizon / entrant.line.rate * BELOW;
    // Not a number where nothing keeps it: infinite rates reach any horizon at once.
    entrant.line.since.saturating_add(wait as u64)
}

#[derive(Default)]
pub(crate) struct Horizon {
    pub(crate) ranks: Ranks,
    /// From the lowest up. Those asleep in a wheel are below the horizon of its number, and were above the one before.
    horizons: [f64; WHEELS],
    /// If more than so many are above a horizon it is raised.
    most: [usize; WHEELS],
    gathered: Vec<u32>,
    values: Vec<f64>,
}

impl Horizon {
    /// The candidate has this line now.
    fn settle(&mut self, who: u32, entrant: Entrant) {
        let member = &self.ranks.members[who as usize];
        match member.at {
            At::Awake => return self.ranks.reseat(who, entrant),
            // It will be seen to early enough.
            At::Asleep(wheel) if member.due <= due(entrant, self.horizons[usize::from(wheel)]) => {
                return
            }
            _ => self.ranks.rouse(who),
        }
        self.place(who, entrant);
    }

    /// Finds the place of one who is nowhere.
    fn place(&mut self, who: u32, entrant: Entrant) {
        for (wheel, &horizon) in self.horizons.iter().enumerate() {
            let due = due(entrant, horizon);
            if due > self.ranks.wheels[wheel].base() {
                return self.ranks.sleep(who, wheel, due);
            }
        }
        self.ranks.seat(who, entrant);
    }

    /// The slot of the candidate that goes first; `None` if all scores are infinite.
    pub(crate) fn best(
        &mut self,
        order: &Aging<'_>,
        candidates: &[Candidate],
        entrants: &[Entrant],
    ) -> Option<u32> {
        if !self.ranks.is_on() {
            let storages = candidates.iter().map(|candidate| candidate.storage.0);
            self.ranks.start(storages, order.clock);
            // All are awake; what follows puts most to sleep.
            self.horizons = [LOWEST; WHEELS];
            self.most = [0; WHEELS];
        }
        self.catch_up(order.clock, entrants);
        if self.ranks.above(0) > 4 * candidates.len() {
            // Mostly void alarms.
            self.ranks.gather(0, order.clock, &mut self.gathered);
            self.set_horizons(0, LOWEST, order, entrants);
        }
        for wheel in 0..WHEELS {
            if self.ranks.above(wheel + 1) > self.most[wheel] {
                self.ranks
                    .gather(wheel + 1, order.clock, &mut self.gathered);
                self.set_horizons(wheel, self.horizons[wheel], order, entrants);
            }
        }
        for wheel in (0..WHEELS).rev() {
            let leader = self.leader(order);
            if leader.is_some() {
                return leader;
            }
            let floor = if wheel > 0 {
                self.horizons[wheel - 1]
            } else {
                LOWEST
            };
            if self.horizons[wheel] > floor {
                self.ranks.gather(wheel, order.clock, &mut self.gathered);
                self.set_horizons(wheel, floor, order, entrants);
            }
        }
        self.leader(order)
    }

    /// Sees to those who changed and to those whose sleep is over.
    fn catch_up(&mut self, clock: u64, entrants: &[Entrant]) {
        while let Some((who, slot)) = self.ranks.next_changed() {
            self.settle(who, entrants[slot as usize]);
        }
        for wheel in 0..WHEELS {
            while let Some((who, slot)) = self.ranks.pop(wheel, clock) {
                self.place(who, entrants[slot as usize]);
            }
        }
    }

    /// The first of those awake, if it is above the highest horizon.
    fn leader(&mut self, order: &Aging<'_>) -> Option<u32> {
        let slot = self.ranks.leader(order, order.clock)?;
        let who = order.candidates()[slot as usize].storage.index();
        let leader = self.ranks.seats[self.ranks.members[who].seat as usize];
        (order.value(leader) >= self.horizons[WHEELS - 1]).then_some(slot)
    }

    /// Sets the horizons from one on, not below a floor, by the values of those gathered, and places them.
    fn set_horizons(&mut self, from: usize, floor: f64, order: &Aging<'_>, entrants: &[Entrant]) {
        let gathered = std::mem::take(&mut self.gathered);
        let slot = |ranks: &Ranks, who: u32| ranks.members[who as usize].slot as usize;
        self.values.clear();
        for &who in &gathered {
            let value = order.value(entrants[slot(&self.ranks, who)]);
            // Not a number: an infinite score.
            self.values.push(value.max(0.0));
        }
        let mut floor = floor;
        for wheel in from..WHEELS {
            floor = nth_highest(&mut self.values, wanted(wheel, entrants.len())).max(floor);
            self.horizons[wheel] = floor;
        }
        for &who in &gathered {
            self.place(who, entrants[slot(&self.ranks, who)]);
        }
        self.gathered = gathered;
        for wheel in from..WHEELS {
            // Equals cannot be parted.
            let left = self.ranks.above(wheel + 1);
            self.most[wheel] = (4 * wanted(wheel, entrants.len())).max(2 * left);
        }
    }
}

/// How many of so many candidates are to be above a horizon.
fn wanted(wheel: usize, candidates: usize) -> usize {
    let above = candidates / PART.pow(wheel as u32 + 1);
    if wheel == WHEELS - 1 {
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
