//! A schedule, changed run by run.

use super::lives::{Life, Lives, Reader};
use super::moment::Moment;
use super::profile::Profile;
use super::runs::Runs;
use crate::step::model::step::{NONE, Op, OpKind, Step};

/// A change of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Added {
        op: u32,
        slot: u32,
    },
    Removed {
        op: u32,
        slot: u32,
    },
    /// A slot's own memory was known, and is to be worked out again. The changes that this follows from come after it.
    Touched {
        slot: u32,
        own: i64,
    },
}

/// Which ops run again when.
///
/// Any set of runs is a schedule: a run reads what the latest run before it made, and a storage is in memory from a run
/// that makes it to the last that reads it before it is made again. What limits the choice is memory, and ops that
/// write in place: what they wrote into must be made again before it is read again.
///
/// A change takes `O(log n)` for each storage and slot that it touches. The memory of these slots is worked out when it
/// is asked for, in time that grows with their runs; after changes that are undone it is known as before.
#[derive(Clone, Debug)]
pub(crate) struct Schedule<'a> {
    pub(crate) step: &'a Step,
    pub(crate) runs: Runs,
    /// The lives of each storage.
    lives: Vec<Lives>,
    profile: Profile,
    /// Slots whose own memory is to be worked out again, and some that are not dirty any more. In the profile they hold
    /// constants alone.
    dirty: Vec<u32>,
    is_dirty: Vec<bool>,
    /// Nanoseconds of runs again; more than 64 bits where dear ops run often.
    again: u128,
    broken: u64,
    /// The changes since the journal was last taken.
    journal: Vec<Change>,
    /// Views that a life needs.
    scratch: Vec<u32>,
}

impl Step {
    /// The most bytes in memory at a time if every op runs once.
    pub fn peak_bytes(&self) -> u64 {
        Schedule::new(self).peak()
    }
}

impl<'a> Schedule<'a> {
    /// Every op runs once.
    pub(crate) fn new(step: &'a Step) -> Schedule<'a> {
        let ops = step.ops.len();
        let mut schedule = Schedule {
            step,
            runs: Runs::new(ops),
            lives: vec![Lives::default(); step.storages.len()],
            profile: Profile::new(ops + 1),
            dirty: (0..=ops as u32).collect(),
            is_dirty: vec![true; ops + 1],
            again: 0,
            broken: 0,
            journal: Vec::new(),
            scratch: Vec::new(),
        };
        for storage in 0..step.storages.len() as u32 {
            schedule.refresh(storage);
        }
        schedule.settle();
        schedule
    }

    /// The nanoseconds that runs again take, views included.
    pub(crate) fn again_ns(&self) -> u64 {
        u64::try_from(self.again).unwrap_or(u64::MAX)
    }

    /// Whether each run reads what is there.
    pub(crate) fn is_valid(&self) -> bool {
        self.broken == 0
    }

    /// Storages that runs read after an op wrote into them.
    pub(crate) fn broken_storages(&self) -> Vec<u32> {
        if self.broken == 0 {
            return Vec::new();
        }
        let storages = 0..self.lives.len() as u32;
        let broken = storages.filter(|&storage| self.lives[storage as usize].broken > 0);
        broken.collect()
    }

    /// The most bytes in memory at a time.
    pub(crate) fn peak(&mut self) -> u64 {
        self.settle();
        self.profile.largest() as u64
    }

    /// Whether there are ever more bytes in memory. Works out no more slots than it takes to tell.
    pub(crate) fn exceeds(&mut self, bytes: u64) -> bool {
        // What is not worked out yet counts as less than it is.
        while self.profile.largest() as u64 <= bytes {
            if !self.settle_one() {
                return false;
            }
        }
        true
    }

    /// The slot in which the most bytes are in memory.
    pub(crate) fn fullest_slot(&mut self) -> u32 {
        self.settle();
        self.profile.place() as u32
    }

    /// The most bytes in memory during a slot.
    pub(crate) fn peak_of(&mut self, slot: u32) -> u64 {
        self.settle();
        self.profile.at(slot as usize) as u64
    }

    pub(crate) fn lives(&self, storage: u32) -> &Lives {
        &self.lives[storage as usize]
    }

    /// Whether an op runs again in a slot.
    pub(crate) fn has(&self, op: u32, slot: u32) -> bool {
        self.runs.of(op).binary_search(&slot).is_ok()
    }

    /// Whether an op may run again in a slot.
    pub(crate) fn may_run(&self, op: u32, slot: u32) -> bool {
        let Op { kind, until, .. } = self.step.ops[op as usize];
        kind == OpKind::Repeatable && op < slot && slot <= until && slot < self.runs.slots()
    }

    /// Whether a storage may be made again in a slot.
    pub(crate) fn may_be_made(&self, storage: u32, slot: u32) -> bool {
        let record = &self.step.storages[storage as usize];
        let run = Moment::new(slot, record.producer);
        let frozen = record.frozen_from != NONE && Moment::first(record.frozen_from) < run;
        !frozen && self.may_run(record.producer, slot)
    }

    /// Runs an op again in a slot.
    pub(crate) fn add(&mut self, op: u32, slot: u32) {
        if self.runs.add(op, slot) {
            self.again += u128::from(self.step.ops[op as usize].cost);
            self.follow(op, slot);
            self.journal.push(Change::Added { op, slot });
        }
    }

    /// Takes a run again out.
    pub(crate) fn remove(&mut self, op: u32, slot: u32) {
        if self.runs.remove(op, slot) {
            self.again -= u128::from(self.step.ops[op as usize].cost);
            self.follow(op, slot);
            self.journal.push(Change::Removed { op, slot });
        }
    }

    /// Undoes the changes since a mark.
    pub(crate) fn undo_to(&mut self, mark: usize) {
        while self.journal.len() > mark {
            let Some(change) = self.journal.pop() else {
                return;
            };
            let before = self.journal.len();
            match change {
                Change::Added { op, slot } => self.remove(op, slot),
                Change::Removed { op, slot } => self.add(op, slot),
                Change::Touched { slot, own } => {
                    self.is_dirty[slot as usize] = false;
                    self.profile.set(slot as usize, own);
                }
            }
            // The undoing is no change.
            self.journal.truncate(before);
        }
        while self
            .dirty
            .last()
            .is_some_and(|&slot| !self.is_dirty[slot as usize])
        {
            self.dirty.pop();
        }
    }

    /// A mark to undo changes to.
    pub(crate) fn mark(&self) -> usize {
        self.journal.len()
    }

    /// Runs that were added since a mark, those taken out again among them.
    pub(crate) fn added_since(&self, mark: usize) -> Vec<(u32, u32)> {
        let added = |change: &Change| match *change {
            Change::Added { op, slot } => Some((op, slot)),
            Change::Removed { .. } | Change::Touched { .. } => None,
        };
        let mut runs: Vec<(u32, u32)> = self.journal[mark..].iter().filter_map(added).collect();
        runs.sort_unstable();
        runs.dedup();
        runs
    }

    /// Forgets how changes are undone.
    pub(crate) fn keep(&mut self) {
        self.journal.clear();
    }

    /// Works out again what a run of an op touches.
    fn follow(&mut self, op: u32, slot: u32) {
        let step = self.step;
        self.touch(slot);
        for &storage in step.makes.of(op as usize) {
            self.refresh(storage);
        }
        for &storage in step.reads.of(op as usize) {
            self.refresh(storage);
        }
    }

    /// Works out the lives of a storage again, and the memory that they take.
    fn refresh(&mut self, storage: u32) {
        if self.step.storages[storage as usize].constant {
            return;
        }
        let mut reader = Reader {
            step: self.step,
            runs: &self.runs,
            scratch: std::mem::take(&mut self.scratch),
        };
        let new = reader.work_out(storage);
        self.scratch = reader.scratch;
        let old = std::mem::replace(&mut self.lives[storage as usize], new);
        self.again -= u128::from(old.views);
        self.broken -= u64::from(old.broken);
        self.account(storage, &old.lives, -1);
        let new = std::mem::take(&mut self.lives[storage as usize]);
        self.again += u128::from(new.views);
        self.broken += u64::from(new.broken);
        self.account(storage, &new.lives, 1);
        self.lives[storage as usize] = new;
    }

    fn account(&mut self, storage: u32, lives: &[Life], sign: i64) {
        let bytes = sign * self.step.storages[storage as usize].bytes as i64;
        for life in lives {
            let (first, last) = (life.start.slot(), self.last_slot(*life));
            self.touch(first);
            self.touch(last);
            self.profile.raise(first as usize + 1, last as usize, bytes);
        }
    }

    /// The slot of a life's end; the one after all ops for what stays.
    fn last_slot(&self, life: Life) -> u32 {
        life.end.slot().min(self.runs.slots())
    }

    fn touch(&mut self, slot: u32) {
        if !std::mem::replace(&mut self.is_dirty[slot as usize], true) {
            self.dirty.push(slot);
            let least = self.constants(slot) as i64;
            let own = self.profile.set(slot as usize, least);
            self.journal.push(Change::Touched { slot, own });
        }
    }

    fn settle(&mut self) {
        while self.settle_one() {}
    }

    /// Works out the memory of a slot that is to be worked out again. Returns whether there was one.
    fn settle_one(&mut self) -> bool {
        while let Some(slot) = self.dirty.pop() {
            if std::mem::replace(&mut self.is_dirty[slot as usize], false) {
                let own = self.walk(slot, |_, _| {});
                self.profile.set(slot as usize, own as i64);
                return true;
            }
        }
        false
    }

    /// Bytes of constants in a slot.
    fn constants(&self, slot: u32) -> u64 {
        self.step.constants[(slot as usize).min(self.step.ops.len())]
    }

    /// The runs of a slot in order.
    pub(crate) fn runs_in(&self, slot: u32) -> impl Iterator<Item = Moment> + '_ {
        let again = self
            .runs
            .within(slot)
            .iter()
            .map(move |&op| Moment::new(slot, op));
        let first = (slot < self.runs.slots()).then_some(Moment::first(slot));
        again.chain(first)
    }

    /// Walks through a slot, and shows each run with the bytes during it that are not there all through the slot,
    /// constants included. Returns the most.
    pub(crate) fn walk(&self, slot: u32, mut show: impl FnMut(Moment, u64)) -> u64 {
        let step = self.step;
        let mut there = self.constants(slot);
        for run in self.runs_in(slot) {
            for &storage in step.reads.of(run.op() as usize) {
                if let Some(life) = self.lives[storage as usize].at(run) {
                    if life.end == run && life.start.slot() < slot {
                        there += step.storages[storage as usize].bytes;
                    }
                }
            }
        }
        // At the end there is what stays.
        let mut most = there;
        for run in self.runs_in(slot) {
            let op = run.op() as usize;
            let consumes = self.consumes(run);
            let mut during = there + step.ops[op].workspace;
            for &storage in step.makes.of(op) {
                let record = step.storages[storage as usize];
                if !record.constant && (record.block_of == NONE || !consumes) {
                    during += record.bytes;
                }
            }
            show(run, during);
            most = most.max(during);
            for &storage in step.makes.of(op) {
                if self.lives[storage as usize].starts_at(run) {
                    there += step.storages[storage as usize].bytes;
                }
            }
            for &storage in step.reads.of(op) {
                let life = self.lives[storage as usize].at(run);
                if life.is_some_and(|life| life.end == run) {
                    there -= step.storages[storage as usize].bytes;
                }
            }
        }
        most
    }

    /// The first run after a moment that reads a storage in the same life.
    pub(crate) fn next_use(&self, storage: u32, after: Moment) -> Option<Moment> {
        let life = self.lives(storage).at(after)?;
        let next = self.first_read(storage, after);
        next.filter(|&next| next <= life.end)
    }

    /// The first run after a moment that reads a storage, before the storage is made again.
    pub(crate) fn next_read(&self, storage: u32, after: Moment) -> Option<Moment> {
        let producer = self.step.storages[storage as usize].producer;
        let again = self.run_after(producer, after);
        let next = self.first_read(storage, after);
        next.filter(|&next| again.is_none_or(|again| next < again))
    }

    fn first_read(&self, storage: u32, after: Moment) -> Option<Moment> {
        let readers = self.step.readers.of(storage as usize).iter();
        let each = |&reader: &u32| {
            let first = Some(Moment::first(reader)).filter(|&first| after < first);
            first.into_iter().chain(self.run_after(reader, after)).min()
        };
        readers.filter_map(each).min()
    }

    /// The first run again of an op after a moment.
    fn run_after(&self, op: u32, after: Moment) -> Option<Moment> {
        let slots = self.runs.of(op);
        let place = slots.partition_point(|&slot| Moment::new(slot, op) <= after);
        slots.get(place).map(|&slot| Moment::new(slot, op))
    }

    /// Whether an op wrote into a storage that a run reads since it was last made.
    pub(crate) fn is_overwritten(&self, storage: u32, run: Moment) -> bool {
        let Some(life) = self.lives[storage as usize].at(run) else {
            return false;
        };
        let kills = self.step.kills.of(storage as usize).iter();
        kills
            .map(|&killer| Moment::first(killer))
            .any(|killed| life.start < killed && killed < run)
    }

    /// Whether a run takes the blocks of what it writes into: the first run does, and another one if it is the last to
    /// read all of them, and what it makes is not there.
    pub(crate) fn consumes(&self, run: Moment) -> bool {
        let step = self.step;
        run == Moment::first(run.op())
            || step.makes.of(run.op() as usize).iter().all(|&storage| {
                step.old_block(storage).is_none_or(|old| {
                    let life = self.lives[old as usize].at(run);
                    let there = self.lives[storage as usize].at(run);
                    life.is_some_and(|life| life.end == run) && there.is_none()
                })
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use remat_trace::{Event, TraceOutput, TraceOutputKind};

    /// Each op reads the result of the one before and of another one, and makes a result of some bytes, or writes over
    /// what the other one made.
    fn step(ops: &[(u64, usize, bool)]) -> Step {
        let constant = Event::Constant {
            tensor: 0,
            bytes: 3,
            device: 0,
        };
        let op = |(place, &(bytes, other, writes)): (usize, &(u64, usize, bool))| {
            let inputs = vec![place as u64, (other % (place + 1)) as u64];
            let kind = if writes && inputs[1] > 0 {
                TraceOutputKind::InPlace { of: 1 }
            } else {
                TraceOutputKind::Fresh { bytes, device: 0 }
            };
            Event::Op {
                name: "op".into(),
                inputs,
                outputs: vec![TraceOutput {
                    tensor: place as u64 + 1,
                    kind,
                }],
                workspace: bytes % 3,
                workspace_device: 0,
                cost: bytes,
                replay: true,
            }
        };
        let events: Vec<Event> = [constant]
            .into_iter()
            .chain(ops.iter().enumerate().map(op))
            .collect();
        Step::from_events(&events).expect("a sound step")
    }

    /// The schedule with the same runs, made from nothing.
    fn afresh<'a>(schedule: &Schedule<'a>) -> Schedule<'a> {
        let mut fresh = Schedule::new(schedule.step);
        for slot in 0..schedule.runs.slots() {
            for &op in schedule.runs.within(slot) {
                fresh.add(op, slot);
            }
        }
        fresh
    }

    proptest! {
        #[test]
        fn changes_and_their_undoing_leave_what_the_runs_alone_say(
            ops in prop::collection::vec((1u64..20, 0usize..12, prop::bool::weighted(0.2)), 2..12),
            changes in prop::collection::vec((0u8..7, 0u32..13, 0u32..13, 0u64..120), 0..40),
        ) {
            let step = step(&ops);
            let mut schedule = Schedule::new(&step);
            let mut marks = Vec::new();
            for (change, op, slot, bytes) in changes {
                let op = op % step.ops.len() as u32;
                match change {
                    0..=2 if schedule.may_run(op, slot) => schedule.add(op, slot),
                    3 => schedule.remove(op, slot % step.ops.len() as u32),
                    4 => marks.push(schedule.mark()),
                    5 => {
                        let mark = marks.pop();
                        schedule.undo_to(mark.unwrap_or(0));
                    }
                    6 => prop_assert_eq!(schedule.exceeds(bytes), afresh(&schedule).peak() > bytes),
                    _ => {}
                }
            }
            let mut fresh = afresh(&schedule);
            for slot in 0..=schedule.runs.slots() {
                prop_assert_eq!(schedule.peak_of(slot), fresh.peak_of(slot));
            }
            prop_assert_eq!(schedule.peak(), fresh.peak());
            prop_assert_eq!(schedule.again_ns(), fresh.again_ns());
            prop_assert_eq!(schedule.is_valid(), fresh.is_valid());
        }
    }
}
