//! The period of the ops so far: the last ones are those before them once more, and leave as much referenced. Where the
//! program says that its steps begin, they are periods wherever that is, whatever they leave.

use crate::random::mix;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// So many ops in a row are looked up among those before.
const GRAM: usize = 32;
/// Ops that are remembered; a step of half as many is found.
const MOST: usize = 1 << 20;
/// So many steps in a row, as the program marks them, are one period at most.
const STEPS: usize = 8;
/// A step starts where the program refers to this part of what it refers to at most, or less, beyond the least.
const LOW: u64 = 64;
/// In a whole step without replays this part of all memory rises and falls that ever did,
const RISES: u64 = 4;
/// and at most this part of what does is more or less at its end.
const DRIFTS: u64 = 16;
/// The base of the hash of sequences (odd, from SplitMix64).
const BASE: u64 = 0x9e37_79b9_7f4a_7c15;

/// The state of affairs when an op was announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    pub(super) signature: u64,
    /// Bytes that the program refers to, evicted ones too.
    pub(super) referenced: u64,
    /// Storages that the program refers to.
    pub(super) count: u64,
    /// Cost of all replays so far.
    pub(super) replayed: u64,
    /// How many ops ago the earliest op was announced of those that were replayed since the moment before, and that
    /// [count](Repeats::counts); 0 if none was.
    pub(super) back: u64,
}

impl Moment {
    /// Whether as much is referenced so many steps later, but for what programs gather, such as a loss a step.
    pub(super) fn is_like(&self, later: &Moment, steps: u64) -> bool {
        let gathered = (self.referenced >> 16).max(4096).saturating_mul(steps);
        self.referenced.abs_diff(later.referenced) <= gathered
            && self.count.abs_diff(later.count) <= 16 * steps
    }
}

/// A step that repeats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Period {
    /// The signatures of its ops, from the moment on at which memory starts to rise.
    pub(super) signatures: Vec<u64>,
    /// A hash of the ops, whichever comes first.
    pub(super) hash: u64,
    /// The ops to come before the next step starts.
    pub(super) ahead: usize,
    /// Cost of the replays in it.
    pub(super) replayed: u64,
}

/// Where much was referenced.
#[derive(Default)]
struct High {
    /// The least and the most bytes referenced so far.
    least: u64,
    most: u64,
    /// The last op at which at least half of the most was referenced, beyond the least.
    at: usize,
}

/// The periods that are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sought {
    /// Those in which ops were replayed.
    #[default]
    Replayed,
    /// Also others that reach half of the most that was referenced: else each loop over parameters would be one.
    All,
    /// Of the others only those in which memory rises and falls as in a whole step. If a loop amid a step were
    /// followed, the ops that leave no record there would hide the step.
    Whole,
}

/// The ops so far.
#[derive(Default)]
pub(super) struct Repeats {
    moments: Vec<Moment>,
    /// The hash of all ops before each.
    prefixes: Vec<u64>,
    /// The sum of the hashes of all ops before each, whatever their order.
    sums: Vec<u64>,
    /// Ops since which no op was replayed that is older than they are, and that counts, in order.
    starts: Vec<u32>,
    /// The longest period so far that repeats, memory that rises and falls included, but for replays of older ops; 0 if
    /// there is none.
    longest: u64,
    high: High,
    /// The ops before which the program marked the last steps, in order.
    marks: Vec<usize>,
    /// The op before which a step may have begun last.
    border: Option<usize>,
    sought: Sought,
    /// The moments by which it is looked at again whether memory rises and falls.
    looks_at: usize,
    /// Where so many ops in a row ended last, by their hash.
    ends: HashMap<u64, u32, BuildHasherDefault<Hashed>>,
    /// Where they ended before the last op, if they are the same as those that end with it.
    ended: Option<u32>,
}

impl High {
    fn note(&mut self, at: usize, referenced: u64) {
        if at == 0 {
            (self.least, self.most) = (referenced, referenced);
        }
        self.least = self.least.min(referenced);
        self.most = self.most.max(referenced);
        if referenced - self.least >= (self.most - self.least) / 2 {
            self.at = at;
        }
    }
}

impl Repeats {
    /// Whether it matters that an op of so many ops ago is replayed. It does not if the op was there before the last
    /// two periods: a step may read what was made long before, and its plan takes that as there.
    pub(super) fn counts(&self, back: u64) -> bool {
        self.longest == 0 || back <= 2 * self.longest
    }

    /// Finds these periods from now on.
    pub(super) fn seek(&mut self, sought: Sought) {
        self.sought = sought;
    }

    pub(super) fn seeks(&self, sought: Sought) -> bool {
        self.sought == sought
    }

    /// Takes in the op that is announced. Returns the period if one that is sought ends with it, in which no op of the
    /// period before was replayed, unless its hash is known.
    ///
    /// Takes constant time, averaged over ops, and time linear in the period where one is found.
    pub(super) fn push(&mut self, moment: Moment, known: &[u64]) -> Option<Period> {
        if self.moments.len() >= MOST {
            self.clear();
        }
        let last = self.moments.len();
        if self.prefixes.is_empty() {
            self.prefixes.push(0);
            self.sums.push(0);
        }
        let prefix = self.prefixes[last];
        let next = prefix.wrapping_mul(BASE).wrapping_add(moment.signature);
        self.prefixes.push(next);
        let sum = self.sums[last].wrapping_add(mix(moment.signature));
        self.sums.push(sum);
        self.moments.push(moment);
        self.high.note(last, moment.referenced);
        // A period that starts after an op that was replayed lacks it.
        let earliest = (last as u64).checked_sub(moment.back);
        while self
            .starts
            .last()
            .is_some_and(|&start| earliest.is_none_or(|earliest| u64::from(start) > earliest))
        {
            self.starts.pop();
        }
        self.starts.push(last as u32);
        let start = (last + 1).checked_sub(GRAM)?;
        let key = mix(self.hash(start, last + 1));
        self.ended = self.ends.insert(key, last as u32);
        let before = self.ended?;
        let period = last - before as usize;
        let earlier = (last + 1).checked_sub(2 * period)?;
        let then = self.moments[before as usize];
        let alike = then.is_like(&moment, 1);
        let middle = earlier + period;
        if !alike || !self.repeat(earlier, middle) {
            return None;
        }
        let hash = self.sum(middle);
        if known.contains(&hash) {
            return None;
        }
        let judged = self.longest == 0 || period as u64 <= self.longest;
        let judged = judged
            && match self.sought {
                Sought::Replayed => true,
                Sought::All => self.high.at >= middle,
                Sought::Whole => self.high.at >= middle && self.rises_and_falls(middle),
            };
        if judged && self.is_start(middle) {
            return Some(self.period(middle, hash));
        }
        // A loop amid a step, with little of the memory that rises and falls in it, tells nothing of what is older.
        if self.high.at >= middle {
            self.lengthen(period);
        }
        None
    }

    /// The op that was taken in last did not run. Takes constant time.
    pub(super) fn take_back(&mut self) {
        let Some(last) = self.moments.len().checked_sub(1) else {
            return;
        };
        if let Some(start) = (last + 1).checked_sub(GRAM) {
            let key = mix(self.hash(start, last + 1));
            match self.ended {
                Some(before) => self.ends.insert(key, before),
                None => self.ends.remove(&key),
            };
        }
        self.moments.pop();
        self.prefixes.pop();
        self.sums.pop();
        if self.starts.last() == Some(&(last as u32)) {
            self.starts.pop();
        }
        // What was to begin with the op after it begins with the one that comes in its place.
        self.border = self.border.map(|border| border.min(last));
        self.marks
            .iter_mut()
            .for_each(|mark| *mark = (*mark).min(last));
        self.marks.dedup();
    }

    /// A step of the program begins with the op that comes next. Returns the period of one or more steps that ends
    /// here, if there is one as for [`push`](Self::push), however much is referenced.
    ///
    /// Takes time linear in the period where one is found, and else constant time.
    pub(super) fn mark(&mut self, known: &[u64]) -> Option<Period> {
        let here = self.moments.len();
        if self.marks.last() == Some(&here) {
            return None;
        }
        if self.marks.len() == 2 * STEPS {
            self.marks.remove(0);
        }
        self.marks.push(here);
        let last = self.marks.len() - 1;
        for steps in 1..=last / 2 {
            let (earlier, middle) = (self.marks[last - 2 * steps], self.marks[last - steps]);
            if middle - earlier != here - middle || !self.repeat(earlier, middle) {
                continue;
            }
            let hash = self.sum(middle);
            if known.contains(&hash) {
                continue;
            }
            if let Some(period) = self.step_from(middle) {
                return Some(period);
            }
        }
        None
    }

    /// A step of the program may begin with the op that comes next. Returns the op with which one might have before, if
    /// there are enough ops between, a hash of these, and the last moment.
    pub(super) fn border(&mut self) -> Option<(usize, u64, Moment)> {
        let here = self.moments.len();
        let before = self.border.replace(here)?;
        let last = self.moments.last().filter(|_| here - before >= GRAM)?;
        Some((before, self.hash(before, here), *last))
    }

    /// The ops from this one on as a step, unless older ones were replayed meanwhile.
    pub(super) fn step_from(&mut self, from: usize) -> Option<Period> {
        if !self.is_start(from) {
            self.lengthen(self.moments.len() - from);
            return None;
        }
        let signatures = self.moments[from..].iter().map(|moment| moment.signature);
        Some(Period {
            signatures: signatures.collect(),
            hash: self.sum(from),
            ahead: 0,
            replayed: self.replayed(from),
        })
    }

    /// Whether a step may have begun amid the latest ops.
    pub(super) fn has_border_amid(&self, ops: usize) -> bool {
        self.border
            .is_some_and(|border| border + ops >= self.moments.len())
    }

    /// Whether the ops between two are the same as those after them, and ops were replayed among the latter if that
    /// matters.
    fn repeat(&self, earlier: usize, middle: usize) -> bool {
        let end = self.moments.len();
        let replayed = self.moments[middle].replayed < self.moments[end - 1].replayed;
        (replayed || self.sought != Sought::Replayed)
            && self.hash(earlier, middle) == self.hash(middle, end)
    }

    /// Whether what is referenced rises and falls, in the period from this op on, by much of what it ever did, and by
    /// far more than it changes from one period to the next. It does not in a loop amid a step, which takes little or
    /// keeps something of each turn.
    ///
    /// Takes constant time, averaged over ops: where it does not, it is not looked at again for as long as a period.
    fn rises_and_falls(&mut self, from: usize) -> bool {
        let end = self.moments.len();
        if end < self.looks_at {
            return false;
        }
        let period = self.moments[from..].iter();
        let referenced = period.map(|moment| moment.referenced);
        let (least, most) = (referenced.clone().min(), referenced.max());
        let rise = most.unwrap_or_default() - least.unwrap_or_default();
        let drift = self.moments[from - 1]
            .referenced
            .abs_diff(self.moments[end - 1].referenced);
        let most = self.high.most - self.high.least;
        let rises = rise >= most / RISES && drift <= rise / DRIFTS;
        if !rises {
            self.looks_at = end + (end - from);
        }
        rises
    }

    /// A hash of the ops from this one on, whichever comes first.
    fn sum(&self, from: usize) -> u64 {
        self.sums[self.moments.len()].wrapping_sub(self.sums[from])
    }

    /// Cost of the replays from this op on.
    fn replayed(&self, from: usize) -> u64 {
        self.moments[self.moments.len() - 1].replayed
            - self.moments[from.saturating_sub(1)].replayed
    }

    /// Whether no older op was replayed since this one, of those that count.
    fn is_start(&self, at: usize) -> bool {
        self.starts.binary_search(&(at as u32)).is_ok()
    }

    /// So many ops repeat, but for replays of older ops.
    fn lengthen(&mut self, period: usize) {
        if self.longest < period as u64 {
            if self.longest > 0 {
                // What did not count for a shorter period may count for this one.
                self.starts.clear();
            }
            self.longest = period as u64;
        }
    }

    /// The period that starts somewhere from this op on.
    fn period(&self, from: usize, hash: u64) -> Period {
        let moments = &self.moments[from..];
        let referenced = |at: usize| moments[at].referenced;
        let ops = 0..moments.len();
        let (least, most) = ops.fold((u64::MAX, 0), |(least, most), at| {
            (least.min(referenced(at)), most.max(referenced(at)))
        });
        // Where memory starts to rise: a program that does something else between two steps does so before.
        let low = least + (most - least) / LOW;
        let full = (0..moments.len()).find(|&at| referenced(at) == most);
        let mut from_full = (0..moments.len()).map(|at| (full.unwrap_or(0) + at) % moments.len());
        let start = from_full.rfind(|&at| referenced(at) <= low);
        let start = start.unwrap_or(0);
        let turned = moments[start..].iter().chain(&moments[..start]);
        Period {
            signatures: turned.map(|moment| moment.signature).collect(),
            hash,
            ahead: start,
            replayed: self.replayed(from),
        }
    }

    /// Forgets all, and where steps may have begun.
    pub(super) fn forget(&mut self) {
        self.clear();
        self.marks.clear();
        self.border = None;
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        if self.moments.is_empty() {
            return;
        }
        self.moments.clear();
        self.prefixes.clear();
        self.sums.clear();
        self.starts.clear();
        self.longest = 0;
        self.looks_at = 0;
        self.marks.clear();
        self.border = None;
        self.ends.clear();
    }

    /// The hash of the ops from one up to another.
    fn hash(&self, from: usize, to: usize) -> u64 {
        let shifted = self.prefixes[from].wrapping_mul(BASE.wrapping_pow((to - from) as u32));
        self.prefixes[to].wrapping_sub(shifted)
    }
}

/// A hash that is one already.
#[derive(Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = word;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ops with these signatures and bytes referenced before them. Each step replays once, at one place, an op of so
    /// many ops ago, given the ops so far.
    fn periods(
        steps: u64,
        step: &[(u64, u64)],
        replays_at: usize,
        back: impl Fn(u64) -> u64,
    ) -> Vec<Period> {
        let mut repeats = Repeats::default();
        let mut found = Vec::new();
        for number in 0..steps {
            for (place, &(signature, referenced)) in step.iter().enumerate() {
                let so_far = number * step.len() as u64 + place as u64;
                let counts = place == replays_at && repeats.counts(back(so_far));
                let period = repeats.push(
                    Moment {
                        signature,
                        referenced,
                        count: referenced,
                        replayed: if replays_at < step.len() {
                            number * 10 + if place >= replays_at { 10 } else { 0 }
                        } else {
                            0
                        },
                        back: if counts { back(so_far) } else { 0 },
                    },
                    &[],
                );
                found.extend(period);
            }
        }
        found
    }

    #[test]
    fn ops_that_do_not_run_are_no_part_of_a_step() {
        let step = hill(40);
        let found = |tries: &dyn Fn(u64) -> bool| {
            let mut repeats = Repeats::default();
            (0..200).find(|&so_far| {
                let (signature, referenced) = step[so_far as usize % step.len()];
                let moment = Moment {
                    signature,
                    referenced,
                    count: referenced,
                    replayed: so_far,
                    back: 0,
                };
                if tries(so_far) {
                    assert_eq!(repeats.push(moment, &[]), None);
                    repeats.take_back();
                }
                repeats.push(moment, &[]).is_some()
            })
        };
        let at_once = found(&|_| false);
        assert!(at_once.is_some());
        assert_eq!(found(&|so_far| so_far % 7 == 3), at_once);
        assert_eq!(found(&|so_far| so_far + 2 < 2 * 40), at_once);
    }

    #[test]
    fn steps_begin_with_the_op_that_comes_in_place_of_one_that_did_not_run() {
        let moment = |at: u64| Moment {
            signature: at % 40,
            referenced: at,
            count: 1,
            replayed: at,
            back: 1,
        };
        let mut repeats = Repeats::default();
        let begin = |repeats: &mut Repeats| {
            let marked = repeats.mark(&[]).map(|step| step.signatures.len());
            (marked, repeats.border().map(|(from, ..)| from))
        };
        assert_eq!(begin(&mut repeats), (None, None));
        (0..40).for_each(|at| drop(repeats.push(moment(at), &[])));
        assert_eq!(begin(&mut repeats), (None, Some(0)));
        drop(repeats.push(moment(40), &[]));
        // Another thread may say so while an op runs that raises an error then.
        assert_eq!(begin(&mut repeats), (None, None));
        repeats.take_back();
        assert_eq!(begin(&mut repeats), (None, None));
        (40..80).for_each(|at| drop(repeats.push(moment(at), &[])));
        assert_eq!(begin(&mut repeats), (Some(40), Some(40)));
    }

    /// Memory rises up to the middle, and falls again.
    fn hill(ops: u64) -> Vec<(u64, u64)> {
        let height = |at: u64| (1 + at.min(ops - at)) << 20;
        (0..ops).map(|at| (7 * at + 1, height(at))).collect()
    }

    #[test]
    fn a_step_is_found_from_where_memory_starts_to_rise() {
        let step = hill(400);
        let found = periods(3, &step, 300, |_| 200);
        let first = found.first().expect("a period");
        assert_eq!((first.signatures.len(), first.replayed), (400, 10));
        let start = step
            .iter()
            .position(|op| op.0 == first.signatures[0])
            .expect("an op of the step");
        assert!(start <= 400 / 64, "{start}");
        assert!(found.iter().all(|period| period.hash == first.hash));
    }

    #[test]
    fn steps_without_replays_and_steps_that_replay_older_ops_are_not_found() {
        assert!(periods(4, &hill(400), usize::MAX, |_| 0).is_empty());
        // The op that is replayed at 300 is of the step before.
        assert!(periods(9, &hill(400), 300, |_| 401).is_empty());
    }

    #[test]
    fn steps_without_replays_are_found_where_asked() {
        // Two hills with a loop that takes no memory after each, as of an optimizer.
        let mut step = hill(400);
        step.extend((0..200).map(|at| (at % 5 + 5000, 1 << 20)));
        let mut repeats = Repeats::default();
        repeats.seek(Sought::All);
        let mut found = Vec::new();
        for (at, &(signature, referenced)) in (0..).zip(step.iter().cycle().take(3 * step.len())) {
            let moment = Moment {
                signature,
                referenced,
                count: 1,
                replayed: 0,
                back: 0,
            };
            if let Some(period) = repeats.push(moment, &[]) {
                found.push((at, period.signatures.len(), period.replayed));
            }
        }
        assert!(!found.is_empty());
        assert!(
            found
                .iter()
                .all(|&(at, ops, replayed)| at >= 1199 && ops == 600 && replayed == 0)
        );
    }

    #[test]
    fn loops_that_take_little_or_keep_something_are_no_whole_steps() {
        // Each turn of a loop takes 448 bytes at most.
        let finds = |kept: u64, before: u64, sought: Sought| {
            let mut repeats = Repeats::default();
            repeats.seek(sought);
            (0..4000u64).any(|number| {
                let (turn, at) = (number / 8, number % 8);
                let moment = Moment {
                    signature: at,
                    referenced: if number == 0 {
                        0
                    } else {
                        before + 64 * at + kept * turn
                    },
                    count: 1,
                    replayed: 0,
                    back: 0,
                };
                repeats.push(moment, &[]).is_some()
            })
        };
        assert!(!finds(64, 0, Sought::Whole));
        // A program may gather a loss a step.
        assert!(finds(8, 0, Sought::Whole));
        assert!(finds(0, 448 * 2, Sought::Whole));
        assert!(!finds(0, 448 * 4, Sought::Whole));
        assert!(finds(0, 448 * 4, Sought::All));
    }

    #[test]
    fn what_was_made_before_all_steps_may_be_replayed_in_each() {
        let found = periods(9, &hill(400), 300, |so_far| so_far - 20);
        assert!(found.iter().any(|period| period.signatures.len() == 400));
    }

    #[test]
    fn a_step_that_is_known_is_not_found_again() {
        let step = hill(400);
        let hash = periods(3, &step, 300, |_| 200)[0].hash;
        let mut repeats = Repeats::default();
        for (number, &(signature, referenced)) in (0..).zip(step.iter().cycle().take(1600)) {
            let moment = Moment {
                signature,
                referenced,
                count: referenced,
                replayed: number,
                back: 1,
            };
            assert_eq!(repeats.push(moment, &[hash]), None);
        }
    }

    /// The periods that marks before these steps find; each step begins with an op of its own.
    fn marked(steps: &[&[u64]]) -> Vec<usize> {
        let (mut repeats, mut known) = (Repeats::default(), Vec::new());
        let mut found = Vec::new();
        let mut ops = 0;
        for step in steps {
            if let Some(period) = repeats.mark(&known) {
                known.push(period.hash);
                found.push(period.signatures.len());
            }
            for &signature in *step {
                ops += 1;
                let moment = Moment {
                    signature,
                    // More from step to step.
                    referenced: ops << 20,
                    count: ops,
                    replayed: ops,
                    back: 1,
                };
                assert_eq!(repeats.push(moment, &known), None);
            }
        }
        found
    }

    #[test]
    fn marked_steps_are_found_that_leave_more_referenced() {
        let (train, other, check) = ([1, 2, 3], [1, 2, 4], [5]);
        assert_eq!(marked(&[&train, &train, &train]), [3]);
        assert_eq!(marked(&[&train, &other, &train, &other]), []);
        assert_eq!(marked(&[&train, &other, &train, &other, &check]), [6]);
        // The steps by themselves, and both with what is between them.
        let round: [&[u64]; 3] = [&train, &train, &check];
        let rounds = round.iter().cycle().take(7).copied();
        assert_eq!(marked(&rounds.collect::<Vec<_>>()), [3, 7]);
        assert_eq!(marked(&[&check, &train, &other, &train]), []);
    }

    #[test]
    fn layers_of_a_forward_pass_are_no_step() {
        let mut repeats = Repeats::default();
        for number in 0..4000 {
            let moment = Moment {
                signature: number % 40,
                referenced: (1 << 20) + (number << 14),
                count: number,
                replayed: number,
                back: 1,
            };
            assert_eq!(repeats.push(moment, &[]), None);
        }
    }
}
