//! Candidates that may win now, and those of which it is known that they cannot before some time.

use super::order::{Entrant, Order};
use super::scan::scan;
use super::tournament::Tournament;
use super::wheel::Wheel;

/// No member, no slot.
pub(crate) const NOBODY: u32 = u32::MAX;

/// Above so many awake, a tournament beats a scan of them.
const CROWD: usize = 512;

/// Where a member is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum At {
    #[default]
    Nowhere,
    /// In the wheel of this number.
    Asleep(u8),
    /// Among those that are compared.
    Awake,
}

/// What is known of a storage. It goes on sleeping while it is no candidate: most are locked and unlocked again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    /// If asleep: the time until which it cannot win. An alarm for another time, or in another wheel, is void.
    pub(crate) due: u64,
    /// Its slot in the list, [`NOBODY`] while it is no candidate.
    pub(crate) slot: u32,
    /// Its seat, if awake.
    pub(crate) seat: u32,
    pub(crate) at: At,
    /// Named among those changed.
    changed: bool,
}

impl Member {
    /// Ends a sleep; whether that was this one, of a candidate.
    fn wake(&mut self, wheel: usize, due: u64) -> bool {
        if self.at != At::Asleep(wheel as u8) || self.due != due {
            return false;
        }
        self.at = At::Nowhere;
        self.slot != NOBODY
    }
}

impl Default for Member {
    fn default() -> Member {
        Member {
            due: 0,
            slot: NOBODY,
            seat: NOBODY,
            at: At::Nowhere,
            changed: false,
        }
    }
}

/// Wheels of sleepers, from the deepest sleep up.
pub(crate) const WHEELS: usize = 3;

/// The candidates of a list, asleep or awake.
#[derive(Default)]
pub(crate) struct Ranks {
    on: bool,
    /// By storage.
    pub(crate) members: Vec<Member>,
    pub(crate) wheels: [Wheel; WHEELS],
    /// Those awake, in no order.
    pub(crate) seats: Vec<Entrant>,
    /// Whose seat it is.
    pub(crate) sitters: Vec<u32>,
    /// Among those awake, if they are many.
    pub(crate) tournament: Tournament,
    /// Storages whose candidates changed since they were last seen to.
    changed: Vec<u32>,
}

impl Ranks {
    pub(crate) fn is_on(&self) -> bool {
        self.on
    }

    pub(crate) fn stop(&mut self) {
        self.on = false;
    }

    /// Starts with nobody anywhere; `storages` names that of each slot.
    pub(crate) fn start(&mut self, storages: impl Iterator<Item = u32>, base: u64) {
        let mut gathered = Vec::new();
        self.gather(0, base, &mut gathered);
        self.on = true;
        self.changed.clear();
        for member in &mut self.members {
            member.slot = NOBODY;
            member.changed = false;
        }
        for (who, slot) in storages.zip(0..) {
            self.list(who, slot);
            self.change(who);
        }
    }

    /// Takes out those awake and those in the wheels from one on, which start over from a base. Names the candidates.
    pub(crate) fn gather(&mut self, from: usize, base: u64, into: &mut Vec<u32>) {
        into.clear();
        into.append(&mut self.sitters);
        self.seats.clear();
        self.tournament.stop();
        let members = &mut self.members;
        for &who in into.iter() {
            members[who as usize].at = At::Nowhere;
        }
        for (number, wheel) in self.wheels.iter_mut().enumerate().skip(from) {
            wheel.drain(base, |who, due| {
                if members[who as usize].wake(number, due) {
                    into.push(who);
                }
            });
        }
    }

    /// The storage is a candidate, in this slot.
    pub(crate) fn list(&mut self, who: u32, slot: u32) {
        if who as usize >= self.members.len() {
            self.members.resize(who as usize + 1, Member::default());
        }
        let member = &mut self.members[who as usize];
        member.slot = slot;
        if member.at == At::Awake {
            let seat = member.seat as usize;
            self.seats[seat].slot = slot;
            self.tournament.changed(seat);
        }
    }

    /// The candidate has another line.
    pub(crate) fn change(&mut self, who: u32) {
        if !std::mem::replace(&mut self.members[who as usize].changed, true) {
            self.changed.push(who);
        }
    }

    /// One who changed and is a candidate, and its slot.
    pub(crate) fn next_changed(&mut self) -> Option<(u32, u32)> {
        while let Some(who) = self.changed.pop() {
            let member = &mut self.members[who as usize];
            member.changed = false;
            if member.slot != NOBODY {
                return Some((who, member.slot));
            }
        }
        None
    }

    /// The storage is no candidate any more.
    pub(crate) fn delist(&mut self, who: u32) {
        let member = &mut self.members[who as usize];
        member.slot = NOBODY;
        if member.at == At::Awake {
            self.unseat(who);
        }
    }

    pub(crate) fn seat(&mut self, who: u32, entrant: Entrant) {
        let member = &mut self.members[who as usize];
        member.at = At::Awake;
        member.seat = self.seats.len() as u32;
        self.tournament.changed(self.seats.len());
        self.seats.push(entrant);
        self.sitters.push(who);
    }

    pub(crate) fn unseat(&mut self, who: u32) {
        let member = &mut self.members[who as usize];
        member.at = At::Nowhere;
        let seat = member.seat as usize;
        self.seats.swap_remove(seat);
        self.sitters.swap_remove(seat);
        if let Some(&moved) = self.sitters.get(seat) {
            self.members[moved as usize].seat = seat as u32;
        }
        self.tournament.changed(seat);
        self.tournament.changed(self.seats.len());
    }

    /// A member awake has another line.
    pub(crate) fn reseat(&mut self, who: u32, entrant: Entrant) {
        let seat = self.members[who as usize].seat as usize;
        self.seats[seat] = entrant;
        self.tournament.changed(seat);
    }

    pub(crate) fn sleep(&mut self, who: u32, wheel: usize, due: u64) {
        let member = &mut self.members[who as usize];
        member.at = At::Asleep(wheel as u8);
        member.due = due;
        self.wheels[wheel].insert(who, due);
    }

    /// Takes a member out of where it is.
    pub(crate) fn rouse(&mut self, who: u32) {
        match self.members[who as usize].at {
            At::Awake => self.unseat(who),
            _ => self.members[who as usize].at = At::Nowhere,
        }
    }

    /// A candidate whose sleep in a wheel ends until then; it is nowhere now. Gives its slot too.
    pub(crate) fn pop(&mut self, wheel: usize, until: u64) -> Option<(u32, u32)> {
        while let Some((who, due)) = self.wheels[wheel].pop(until) {
            let member = &mut self.members[who as usize];
            if member.wake(wheel, due) {
                return Some((who, member.slot));
            }
        }
        None
    }

    /// Those awake and the alarms of the wheels from one on, void ones too.
    pub(crate) fn above(&self, from: usize) -> usize {
        let asleep = self.wheels[from..].iter().map(Wheel::len);
        self.seats.len() + asleep.sum::<usize>()
    }

    /// The best of those awake.
    pub(crate) fn leader<O: Order>(&mut self, order: &O, clock: u64) -> Option<u32> {
        if self.seats.len() > CROWD {
            return self.tournament.best(order, &self.seats, clock);
        }
        self.tournament.stop();
        scan(order, &self.seats)
    }
}
