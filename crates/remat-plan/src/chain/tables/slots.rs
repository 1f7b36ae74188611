//! Tables by slots: memory is counted in equal parts, a row holds a time for each number of them.
//!
//! Every plan of a class runs each backward operation once and each forward operation at least once. A table
//! therefore holds only the time of forward operations that run *again*. Such times never rise with memory. A row
//! holds them from the first slot in which there is a plan to the first slot from which on more memory saves no more
//! time.
//!
//! While a row is filled, a split of the state's stages is tried in a stretch of slots only where its lower bound
//! ([`crate::chain::tables::bounds`]) is less than the longest known time of the stretch. The split that did best for
//! the state before is tried first. No split that might be better is left out.
//!
//! Times are sums of positive numbers in single precision. With splits nested `d` deep, rounding makes a plan run
//! forward operations again for less than `(1 + 2^-23)^(2 d + 1)` times the least time: for `d = 20` five millionths
//! more, far less than the error of slots. Times that are small multiples of the shortest one are not rounded at all.
//! The cost of a plan is added up in double precision.

use crate::chain::model::error::PlanError;
use crate::chain::model::progress::Pace;
use crate::chain::recurrences::recurrence::{Choice, Recurrence, Splits, State};
use crate::chain::tables::bounds::{Grid, STRETCH, SplitBounds, stretches};
use crate::chain::tables::candidate_splits::{Candidate, Lowest, Times};
use crate::chain::tables::table::Table;
use std::ops::Range;

/// Times of all states.
pub(crate) struct Slots {
    /// Slots that are told apart.
    width: usize,
    /// All rows, as states were done.
    times: Vec<f32>,
    rows: Vec<Row>,
    bounds: SplitBounds,
}

/// The place of a state's times in the table: a stretch of infinite times, the times that differ, and a stretch of
/// the last of them.
#[derive(Clone, Copy, Default)]
struct Row {
    start: usize,
    /// The first slot in which there is a plan.
    from: u32,
    /// How many slots differ from those behind.
    len: u32,
}

impl Slots {
    /// Bytes of a table of so many states for so many slots at most.
    pub(crate) fn bytes(states: u128, top: usize) -> u128 {
        let times = top + 1 + 2 * STRETCH + 2 * stretches(top + 1);
        states * (times * size_of::<f32>() + size_of::<Row>()) as u128
    }

    /// Fills the table for memories from 0 to `top` slots, in time linear in states, choices and slots at worst.
    pub(crate) fn fill(
        recurrence: &impl Recurrence,
        top: usize,
        pace: &mut Pace,
    ) -> Result<Slots, PlanError> {
        let width = top + 1;
        let mut table = Slots {
            width,
            times: Vec::new(),
            rows: vec![Row::default(); recurrence.states()],
            bounds: SplitBounds::new(recurrence, width),
        };
        let mut work = Work {
            lowest: Lowest::new(width),
            guesses: vec![0; stretches(width)],
            found: vec![0; recurrence.most_splits()],
        };
        recurrence.in_order(|state| {
            work.lowest.clear();
            recurrence.singles(state, |choice| {
                let slots = (0..width as i64).step_by(STRETCH);
                let candidate = table.candidate(&choice);
                slots.for_each(|x| candidate.lower(&mut work.lowest, x));
            });
            recurrence.splits(state, |splits| {
                table.lower_to_splits(recurrence, &splits, &mut work);
            });
            table.push(state, work.lowest.times());
            table.bounds.note(recurrence, state, work.lowest.times());
            pace.step()
        })?;
        Ok(table)
    }

    /// The most slots that are told apart.
    pub(crate) fn top(&self) -> i64 {
        self.width as i64 - 1
    }

    fn push(&mut self, state: State, times: &[f32]) {
        let least = times[times.len() - 1];
        let from = times.partition_point(|time| time.is_infinite());
        let to = times.partition_point(|&time| time > least);
        self.rows[state] = Row {
            start: self.times.len(),
            from: from as u32,
            len: (to - from.min(to)) as u32,
        };
        self.times.extend([f32::INFINITY; STRETCH]);
        self.times.extend(&times[from.min(to)..to]);
        self.times.extend([least; STRETCH]);
    }

    /// Lowers the times of a state to those of its splits.
    fn lower_to_splits(&self, recurrence: &impl Recurrence, splits: &Splits<'_>, work: &mut Work) {
        let grid = Grid::new(splits.less);
        let last = grid.stretch(self.top());
        self.lower_block(recurrence, splits, last..last + 1, work);
        let mut end = last;
        while end > 0 {
            let begin = end.saturating_sub(BLOCK);
            self.lower_block(recurrence, splits, begin..end, work);
            end = begin;
        }
    }

    /// Does as [`Slots::lower_to_splits`], in some stretches only. It first finds the splits that may do well
    /// somewhere and then tries each in all of these stretches, so that memory is read in order.
    fn lower_block(
        &self,
        recurrence: &impl Recurrence,
        splits: &Splits<'_>,
        block: Range<usize>,
        work: &mut Work,
    ) {
        let grid = Grid::new(splits.less);
        self.find(recurrence, splits, block.clone(), work);
        let found = work.found[..splits.places.len()].iter_mut().enumerate();
        for (at, stretches) in found.filter(|(_, found)| **found != 0) {
            let place = splits.places.start + at;
            let choice = recurrence.split(splits, place);
            let candidate = self.candidate(&choice);
            while *stretches != 0 {
                let stretch = block.start + stretches.trailing_zeros() as usize;
                *stretches &= *stretches - 1;
                let begin = grid.begin(stretch);
                let known = work.lowest.at(begin);
                candidate.lower(&mut work.lowest, begin);
                if work.lowest.at(begin) < known {
                    work.guesses[stretch] = place;
                }
            }
        }
    }

    /// Finds the splits that may do well in some of these stretches, by their bounds, and tries the guess of each
    /// stretch.
    fn find(
        &self,
        recurrence: &impl Recurrence,
        splits: &Splits<'_>,
        block: Range<usize>,
        work: &mut Work,
    ) {
        let grid = Grid::new(splits.less);
        let last = self.top();
        let found = &mut work.found[..splits.places.len()];
        found.fill(0);
        for stretch in block.clone().rev() {
            let (begin, end) = (grid.begin(stretch), grid.begin(stretch + 1) - 1);
            // With less memory, splits do no better.
            if end < last && work.lowest.at(begin) <= work.lowest.at(last) {
                continue;
            }
            let guess = work.guesses[stretch];
            if splits.places.contains(&guess) {
                let choice = recurrence.split(splits, guess);
                self.candidate(&choice).lower(&mut work.lowest, begin);
            }
            let bit = 1 << (stretch - block.start);
            let limit = work.lowest.at(begin);
            self.bounds
                .below(splits, stretch, limit, |at| found[at] |= bit);
        }
    }

    /// The times of a choice.
    #[inline]
    fn candidate(&self, choice: &Choice) -> Candidate<'_> {
        let (first, less) = match choice.first {
            Some((state, less)) => (self.times_of(state), less),
            None => (Times::NONE, 0),
        };
        Candidate {
            again: choice.again,
            need: choice.need,
            first,
            less,
            second: choice
                .second
                .map_or(Times::NONE, |state| self.times_of(state)),
        }
    }

    #[inline]
    fn times_of(&self, state: State) -> Times<'_> {
        let Row { start, from, len } = self.rows[state];
        Times {
            times: &self.times[start..][..len as usize + 2 * STRETCH],
            before: i64::from(from) - STRETCH as i64,
        }
    }
}

/// Number of stretches whose bounds are looked at before splits are tried in them.
const BLOCK: usize = u64::BITS as usize;

/// Buffers for the state whose row is being filled.
struct Work {
    lowest: Lowest,
    /// By stretch, the place of the last split that did well.
    guesses: Vec<usize>,
    /// By split, the stretches of a block in which it may do well, a bit each.
    found: Vec<u64>,
}

impl Table for Slots {
    fn time(&self, state: State, x: i64) -> f64 {
        self.times_of(state).at(x).into()
    }

    /// Sums are the same as when the table was filled, so that a choice is a best one if it takes as long as the
    /// table says.
    fn best(&self, recurrence: &impl Recurrence, state: State, x: i64) -> Option<Choice> {
        let x = x.min(self.top());
        let time = self.times_of(state).at(x);
        if time.is_infinite() {
            return None;
        }
        let above = f32::from_bits(time.to_bits() + 1); // The next number up: times are not negative.
        let mut best = None;
        recurrence.singles(state, |choice| {
            if best.is_none() && self.candidate(&choice).at(x) <= time {
                best = Some(choice);
            }
        });
        recurrence.splits(state, |splits| {
            if best.is_some() {
                return;
            }
            let stretch = Grid::new(splits.less).stretch(x);
            self.bounds.below(&splits, stretch, above, |at| {
                if best.is_none() {
                    let choice = recurrence.split(&splits, splits.places.start + at);
                    best = (self.candidate(&choice).at(x) <= time).then_some(choice);
                }
            });
        });
        best
    }
}
