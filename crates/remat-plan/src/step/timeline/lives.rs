//! The lives of a storage: from each run that makes it to the last that reads it before it is made again.

use super::moment::Moment;
use super::runs::Runs;
use crate::step::model::step::{NONE, OpKind, Step};

/// A stretch of a schedule in which a storage is in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    /// The run that makes the storage.
    pub(crate) start: Moment,
    /// The last run that reads it.
    pub(crate) end: Moment,
}

/// The lives of a storage, and what they cost beside the runs that make it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lives {
    pub(crate) lives: Vec<Life>,
    /// Nanoseconds of views made again.
    pub(crate) views: u64,
    /// Uses after an op wrote into the storage, without a run in between that makes it again.
    pub(crate) broken: u32,
}

impl Lives {
    /// Whether a life starts with a run.
    pub(crate) fn starts_at(&self, run: Moment) -> bool {
        self.lives
            .binary_search_by_key(&run, |life| life.start)
            .is_ok()
    }

    /// The life in which a run reads the storage.
    pub(crate) fn at(&self, moment: Moment) -> Option<Life> {
        let after = self.lives.partition_point(|life| life.start < moment);
        let life = *self.lives.get(after.checked_sub(1)?)?;
        (life.end >= moment).then_some(life)
    }
}

/// The runs from which lives are worked out.
pub(super) struct Reader<'a> {
    pub(super) step: &'a Step,
    pub(super) runs: &'a Runs,
    /// Views that a life needs.
    pub(super) scratch: Vec<u32>,
}

impl Reader<'_> {
    /// Works the lives of a storage out.
    pub(super) fn work_out(&mut self, storage: u32) -> Lives {
        let step = self.step;
        let record = step.storages[storage as usize];
        let producer = record.producer;
        let mut found = Lives::default();
        let kills = step.kills.of(storage as usize);
        let frozen = (record.frozen_from != NONE).then(|| Moment::first(record.frozen_from));
        let mut start = Moment::first(producer);
        let again = self.runs.of(producer).iter();
        let mut again = again
            .map(|&slot| Moment::new(slot, producer))
            .take_while(|&run| frozen.is_none_or(|frozen| run < frozen));
        loop {
            let next = again.next();
            let before = next.unwrap_or(Moment::END);
            let end = self.last_use(storage, start, before);
            if end > start {
                let inside = |killer: &&u32| {
                    let killed = Moment::first(**killer);
                    start < killed && killed < end
                };
                found.broken += kills.iter().filter(inside).count() as u32;
                found.lives.push(Life { start, end });
                if start.slot() != producer {
                    found.views += self.views_again(storage, start, end);
                }
            }
            match next {
                None => return found,
                Some(next) => start = next,
            }
        }
    }

    /// The last run that reads a storage from `start` to `before`, or `start`.
    fn last_use(&self, storage: u32, start: Moment, before: Moment) -> Moment {
        let mut last = start;
        for &reader in self.step.readers.of(storage as usize) {
            let first = Moment::first(reader);
            if start < first && first < before {
                last = last.max(first);
            }
            let runs = self.runs.of(reader);
            let after = runs.partition_point(|&slot| Moment::new(slot, reader) < before);
            if let Some(&slot) = runs[..after].last() {
                last = last.max(Moment::new(slot, reader));
            }
        }
        last
    }

    /// The cost of the views that are made again in a life of their storage: those that its uses need, unless they
    /// run for the first time in it.
    fn views_again(&mut self, storage: u32, start: Moment, end: Moment) -> u64 {
        let step = self.step;
        let needed = &mut self.scratch;
        needed.clear();
        for &reader in step.readers.of(storage as usize) {
            let inside = |run: Moment| start < run && run <= end;
            let slots = self.runs.of(reader).iter();
            if inside(Moment::first(reader))
                || slots.map(|&slot| Moment::new(slot, reader)).any(inside)
            {
                needed.extend(step.views.of(reader as usize));
            }
        }
        let mut cost = 0;
        let mut done = 0;
        needed.sort_unstable();
        needed.dedup();
        // Views of views come after them, and are looked at in turn.
        while let Some(&view) = needed.get(done) {
            done += 1;
            let op = &step.ops[view as usize];
            let first = Moment::first(view);
            if op.kind != OpKind::View(storage) || (start < first && first <= end) {
                continue;
            }
            cost += op.cost;
            for &base in step.views.of(view as usize) {
                if !needed.contains(&base) {
                    needed.push(base);
                }
            }
        }
        cost
    }
}
