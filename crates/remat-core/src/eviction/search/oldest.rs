//! The search by last access: candidates sleep in a wheel until the time comes that is the oldest of all, a radix heap (Ahuja,
//! Mehlhorn, Orlin, Tarjan 1990). An access costs O(1), a search O(1) amortized but for the levels of the wheel.

use super::order::{Entrant, LastAccess};
use super::ranks::{At, Ranks};
use super::Candidate;

/// The one wheel in use.
const WHEEL: usize = 0;

#[derive(Default)]
pub(crate) struct Oldest {
    pub(crate) ranks: Ranks,
    gathered: Vec<u32>,
}

/// The last access as it is compared: rounded to a double.
fn due(entrant: Entrant) -> u64 {
    entrant.line.since as f64 as u64
}

impl Oldest {
    /// The candidate has this last access now.
    fn settle(&mut self, who: u32, entrant: Entrant) {
        let member = &self.ranks.members[who as usize];
        // It will be seen to early enough.
        if !matches!(member.at, At::Asleep(_)) || member.due > due(entrant) {
            self.ranks.rouse(who);
            self.place(who, entrant);
        }
    }

    fn place(&mut self, who: u32, entrant: Entrant) {
        let due = due(entrant);
        if due > self.ranks.wheels[WHEEL].base() {
            self.ranks.sleep(who, WHEEL, due);
        } else {
            self.ranks.seat(who, entrant);
        }
    }

    /// The slot of the candidate that goes first.
    pub(crate) fn best(
        &mut self,
        order: &LastAccess<'_>,
        candidates: &[Candidate],
        entrants: &[Entrant],
    ) -> Option<u32> {
        if !self.ranks.is_on() {
            let storages = candidates.iter().map(|candidate| candidate.storage.0);
            self.ranks.start(storages, 0);
        }
        while let Some((who, slot)) = self.ranks.next_changed() {
            self.settle(who, entrants[slot as usize]);
        }
        if self.ranks.above(0) > 4 * candidates.len() {
            self.drop_void_alarms(entrants);
        }
        while self.ranks.seats.is_empty() {
            let (who, slot) = self.ranks.pop(WHEEL, u64::MAX)?;
            self.place(who, entrants[slot as usize]);
            // Its equals too.
            let base = self.ranks.wheels[WHEEL].base();
            while let Some((who, slot)) = self.ranks.pop(WHEEL, base) {
                self.place(who, entrants[slot as usize]);
            }
        }
        self.ranks.leader(order, 0)
    }

    fn drop_void_alarms(&mut self, entrants: &[Entrant]) {
        let base = self.ranks.wheels[WHEEL].base();
        self.ranks.gather(WHEEL, base, &mut self.gathered);
        for index in 0..self.gathered.len() {
            let who = self.gathered[index];
            let slot = self.ranks.members[who as usize].slot;
            self.place(who, entrants[slot as usize]);
        }
    }
}
