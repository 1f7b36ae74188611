//! Steps of several kinds in no order, such as those on batches of a few lengths. They are what comes between two
//! places at which the front end says that a step may begin.

use super::repeats::{Moment, Period};
use std::collections::{HashMap, VecDeque};

/// A stretch of ops that came so often before is a step.
const OFTEN: u32 = 2;
/// So many stretches in a row are one period at most, which is found as such.
const PERIOD: usize = 8;
/// Stretches that are told apart. Where there are more, they hardly come again.
const MOST: usize = 1024;

/// A stretch that came.
struct Came {
    times: u32,
    /// How many stretches had come by the last time, and the state of affairs then, if it matters.
    number: u64,
    moment: Option<Moment>,
}

/// The kinds of step that come again, whatever comes between.
#[derive(Default)]
pub(super) struct Kinds {
    /// Stretches by their hashes.
    came: HashMap<u64, Came>,
    /// How many came.
    number: u64,
    /// The hashes of the latest ones, in order.
    latest: VecDeque<u64>,
    /// Whether one came again in no order.
    several: bool,
    /// Those that came often, to be recorded when they come again.
    awaited: Vec<Period>,
    /// The hashes of these and of those that were recorded.
    found: Vec<u64>,
}

impl Kinds {
    /// Takes in a stretch of ops. Returns whether it is a step of one kind of several.
    ///
    /// Steps that come in turn are none: as a period they are planned together. Nor is one that leaves more behind from
    /// time to time, by the moments at which it ended; without them that does not matter.
    pub(super) fn note(&mut self, hash: u64, moment: Option<Moment>) -> bool {
        if self.came.len() >= MOST && !self.came.contains_key(&hash) {
            self.came.clear();
        }
        self.number += 1;
        let number = self.number;
        let came = self.came.entry(hash).or_insert(Came {
            times: 0,
            number,
            moment,
        });
        let steps = number - came.number;
        let moments = came.moment.zip(moment);
        if moments.is_some_and(|(then, now)| !then.is_like(&now, steps)) {
            came.times = 0;
        }
        came.times += 1;
        (came.number, came.moment) = (number, moment);
        let (again, often) = (came.times > 1, came.times > OFTEN);
        if self.latest.len() == 2 * PERIOD {
            self.latest.pop_front();
        }
        self.latest.push_back(hash);
        // Of fewer nothing tells yet that they do not take turns.
        self.several |= again && self.latest.len() == 2 * PERIOD && !self.take_turns();
        often && self.several
    }

    /// Whether one came again in no order.
    pub(super) fn are_several(&self) -> bool {
        self.several
    }

    /// Whether the latest stretches are those before them once more, in order.
    fn take_turns(&self) -> bool {
        let latest = |back: usize| {
            self.latest
                .len()
                .checked_sub(back)
                .map(|at| self.latest[at])
        };
        (1..=PERIOD).any(|period| {
            (1..=period)
                .all(|back| latest(back + period).is_some_and(|then| latest(back) == Some(then)))
        })
    }

    /// Whether a step of these ops, whichever comes first, was found.
    pub(super) fn found(&self, hash: u64) -> bool {
        self.found.contains(&hash)
    }

    /// A step was found, and is to be recorded when it comes again.
    pub(super) fn wait_for(&mut self, kind: Period) {
        self.found.push(kind.hash);
        self.awaited.push(kind);
    }

    /// A step may be found anew.
    pub(super) fn forget(&mut self, hash: u64) {
        self.found.retain(|&found| found != hash);
        self.recorded(hash);
    }

    /// One of those that begin with this op. The next time it is another one's turn.
    pub(super) fn beginning_with(&mut self, signature: u64) -> Option<Period> {
        let begins = |kind: &Period| kind.signatures.first() == Some(&signature);
        let at = self.awaited.iter().position(begins)?;
        let kind = self.awaited.remove(at);
        self.awaited.push(kind.clone());
        Some(kind)
    }

    /// A step of these ops was recorded.
    pub(super) fn recorded(&mut self, hash: u64) {
        self.awaited.retain(|kind| kind.hash != hash);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(referenced: u64) -> Moment {
        Moment {
            signature: 0,
            referenced,
            count: referenced,
            replayed: 0,
            back: 0,
        }
    }

    /// The places of those stretches that are steps, if the program refers to so many more bytes after each and
    /// that matters.
    fn steps_among(stretches: impl Iterator<Item = u64>, more: u64, matters: bool) -> Vec<usize> {
        let mut kinds = Kinds::default();
        let found = (0..).zip(stretches).map(|(at, hash)| {
            let referenced = (1 << 30) + at * more + hash * 100_000;
            kinds.note(hash, matters.then(|| moment(referenced)))
        });
        let steps = (0..).zip(found);
        steps
            .filter_map(|(at, is_step)| is_step.then_some(at))
            .collect()
    }

    #[test]
    fn kinds_in_no_order_are_steps() {
        let stretches = [1, 2, 3, 1, 1, 2, 4, 2, 3, 3, 2, 1, 3, 1, 2, 4, 3, 4, 4];
        let steps = |more, matters| steps_among(stretches.into_iter(), more, matters);
        // A little more each time is a loss or so.
        assert_eq!(steps(0, true), [16, 17, 18]);
        assert_eq!(steps(1, true), [16, 17, 18]);
        assert_eq!(steps(50_000, true), []);
        assert_eq!(steps(50_000, false), [16, 17, 18]);
        // What came twice at most is none.
        assert_eq!(steps_among((0..40).map(|at| at % 20), 0, true), []);
    }

    #[test]
    fn steps_that_take_turns_are_one_period() {
        for turns in [&[7][..], &[7, 8], &[7, 7, 8], &[7, 7, 7, 7, 7, 8]] {
            let stretches = [1, 2]
                .into_iter()
                .chain((0..60).map(|at| turns[at % turns.len()]));
            assert_eq!(steps_among(stretches, 0, true), [], "{turns:?}");
        }
    }

    #[test]
    fn of_kinds_that_begin_alike_each_has_its_turn() {
        let kind = |hash: u64, first: u64| Period {
            signatures: vec![first, hash],
            hash,
            ahead: 0,
            replayed: 0,
        };
        let mut kinds = Kinds::default();
        for (hash, first) in [(1, 5), (2, 5), (3, 6)] {
            kinds.wait_for(kind(hash, first));
        }
        let mut next = || kinds.beginning_with(5).map(|kind| kind.hash);
        assert_eq!([next(), next(), next()], [Some(1), Some(2), Some(1)]);
        kinds.recorded(1);
        assert!(kinds.found(1));
        kinds.forget(1);
        assert!(!kinds.found(1));
        assert_eq!(kinds.beginning_with(5).map(|kind| kind.hash), Some(2));
        assert!(kinds.beginning_with(7).is_none());
    }
}
