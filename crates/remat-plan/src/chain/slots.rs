//! Tables by slots: memory is counted in equal parts, a row holds a time for each number of them.
//!
//! Times never rise with memory, so that the last time of a stretch of slots bounds all of the stretch from below, and the first one
//! from above. Most choices are nowhere better than what is known: a glance at two times a stretch tells.
//!
//! Times are parts of the chain's, in single precision: a plan that is read off may be longer than the best by a millionth, far
//! less than what slots cost. What it takes is added up in double precision.

use super::error::PlanError;
use super::recurrence::{Choice, Recurrence, Round, State, LANES};
use super::table::{Pace, Table};

/// Slots of a stretch; their times fill a line of cache.
const STRETCH: usize = 16;

/// Stretches that are looked at together.
const GROUP: usize = 4;

/// A flat table of times, `width` to a state.
pub(crate) struct Slots {
    /// Slots of a row, a multiple of `STRETCH * GROUP`.
    width: usize,
    times: Vec<f32>,
    /// The last time of each stretch.
    lasts: Vec<f32>,
    /// The first slot of each row in which there is a plan.
    from: Vec<u32>,
    /// What times are multiplied by.
    scale: f64,
}

/// A row that is being filled.
#[derive(Clone)]
struct Row {
    times: Vec<f32>,
    /// The first time of each stretch.
    firsts: Vec<f32>,
}

impl Slots {
    /// Bytes of a table of so many states for so many slots.
    pub(crate) fn bytes(states: u128, top: usize) -> u128 {
        let stretches = Self::stretches(top) as u128;
        states * (stretches * (STRETCH as u128 + 1) + 1) * size_of::<f32>() as u128
    }

    fn stretches(top: usize) -> usize {
        (top + 1).div_ceil(STRETCH * GROUP) * GROUP
    }

    /// Fills the table for memories from 0 to at least `top` slots, in time linear in states, choices and slots at worst. `whole`
    /// is the time of the chain without a limit.
    pub(crate) fn fill(
        recurrence: &impl Recurrence,
        top: usize,
        whole: f64,
        pace: &mut Pace,
    ) -> Result<Slots, PlanError> {
        let stretches = Self::stretches(top);
        let width = stretches * STRETCH;
        let states = recurrence.states();
        let mut table = Slots {
            width,
            times: vec![f32::INFINITY; width * states],
            lasts: vec![f32::INFINITY; stretches * states],
            from: vec![0; states],
            scale: if whole > 0.0 { 1.0 / whole } else { 1.0 },
        };
        let mut lanes = vec![Row::new(stretches); LANES];
        recurrence.rounds(|round| match round {
            Round::Offer { lane, choice } => {
                table.lower(&choice, &mut lanes[lane]);
                Ok(())
            }
            Round::Done { lane, state } => {
                let row = &mut lanes[lane];
                table.times[state * width..][..width].copy_from_slice(&row.times);
                let lasts = row.times.chunks_exact(STRETCH);
                let lasts = lasts.map(|times| times[STRETCH - 1]);
                let places = &mut table.lasts[state * stretches..][..stretches];
                places
                    .iter_mut()
                    .zip(lasts)
                    .for_each(|(to, last)| *to = last);
                table.from[state] = row.times.partition_point(|time| time.is_infinite()) as u32;
                row.clear();
                pace.step()
            }
        })?;
        Ok(table)
    }

    /// Times of a state by slots, in parts of the chain's.
    pub(crate) fn row(&self, state: State) -> &[f32] {
        &self.times[state * self.width..][..self.width]
    }

    fn lasts(&self, state: State) -> &[f32] {
        let stretches = self.width / STRETCH;
        &self.lasts[state * stretches..][..stretches]
    }

    /// Lowers a row to what a choice offers.
    fn lower(&self, choice: &Choice, row: &mut Row) {
        let time = (choice.time * self.scale) as f32;
        match (choice.first, choice.second) {
            (Some((first, less)), Some(second)) if less >= 0 => {
                let need = choice.need.max(0) as usize;
                self.lower_by_two(time, need, (first, less as usize), second, row);
            }
            (Some((first, less)), None) if less >= 0 => {
                let start = (less as usize).max(choice.need.max(0) as usize);
                let places = row.times.iter_mut().skip(start);
                for (place, first) in
                    places.zip(self.row(first)[..].iter().skip(start - less as usize))
                {
                    *place = place.min(time + first);
                }
                row.look();
            }
            // No more than a choice a state, or a stage saved in less than its output takes.
            _ => {
                for (x, place) in row.times.iter_mut().enumerate() {
                    *place = place.min((self.time_of(choice, x as i64) * self.scale) as f32);
                }
                row.look();
            }
        }
    }

    /// As [`Slots::lower`], for a sum of two rows, of which the first is read `less` slots lower.
    fn lower_by_two(
        &self,
        time: f32,
        need: usize,
        (first, less): (State, usize),
        second: State,
        row: &mut Row,
    ) {
        let least = (self.from[first] as usize + less).max(self.from[second] as usize);
        let start = least.max(need);
        if start >= self.width {
            return;
        }
        // Slots `x - less` of stretch `k` lie in stretch `k - less / STRETCH` and the one before.
        let begin = start / STRETCH;
        let behind = begin - less / STRETCH;
        let (lows, highs) = (&self.lasts(first)[behind..], &self.lasts(second)[begin..]);
        let sum = Sum {
            time,
            first: self.row(first),
            less,
            second: self.row(second),
        };
        if time + (lows[0] + highs[0]) < row.times[start] {
            row.lower_from(start, &sum);
        }
        let mut k = begin + 1;
        let (lows, highs) = (&lows[1..], &highs[1..]);
        let groups = lows.chunks(GROUP).zip(highs.chunks(GROUP));
        for (low, high) in groups {
            let known = &row.firsts[k..][..high.len()];
            let better = match (low.first_chunk(), high.first_chunk(), known.first_chunk()) {
                (Some(low), Some(high), Some(known)) => better(time, low, high, known),
                // The last, shorter ones.
                _ => {
                    std::array::from_fn(|i| i < known.len() && time + (low[i] + high[i]) < known[i])
                }
            };
            if better != [false; GROUP] {
                for (i, _) in better
                    .iter()
                    .zip(high)
                    .enumerate()
                    .filter(|(_, (&better, _))| better)
                {
                    row.lower_stretch(k + i, &sum);
                }
            }
            k += high.len();
        }
    }
}

/// Where the bounds of a sum from below are less than those of what is known from above.
#[inline]
fn better(
    time: f32,
    low: &[f32; GROUP],
    high: &[f32; GROUP],
    known: &[f32; GROUP],
) -> [bool; GROUP] {
    std::array::from_fn(|i| time + (low[i] + high[i]) < known[i])
}

/// `time`, and two rows, of which the first is read `less` slots lower.
struct Sum<'a> {
    time: f32,
    first: &'a [f32],
    less: usize,
    second: &'a [f32],
}

impl Row {
    fn new(stretches: usize) -> Row {
        Row {
            times: vec![f32::INFINITY; stretches * STRETCH],
            firsts: vec![f32::INFINITY; stretches],
        }
    }

    fn clear(&mut self) {
        self.times.fill(f32::INFINITY);
        self.firsts.fill(f32::INFINITY);
    }

    /// Lowers the slots from `start` to the end of its stretch to a sum.
    fn lower_from(&mut self, start: usize, sum: &Sum) {
        let k = start / STRETCH;
        let end = (k + 1) * STRETCH;
        let first = &sum.first[start - sum.less..end - sum.less];
        let offers = first.iter().zip(&sum.second[start..end]);
        for (place, (first, second)) in self.times[start..end].iter_mut().zip(offers) {
            *place = lower(*place, sum.time + (first + second));
        }
        self.firsts[k] = self.times[k * STRETCH];
    }

    /// Lowers the slots of a stretch to a sum that is there in all of it.
    #[inline]
    fn lower_stretch(&mut self, k: usize, sum: &Sum) {
        let from = k * STRETCH;
        if let (Some(places), Some(first), Some(second)) = (
            self.times[from..].first_chunk_mut(),
            sum.first[from - sum.less..].first_chunk(),
            sum.second[from..].first_chunk(),
        ) {
            lower_line(places, sum.time, first, second);
        }
        self.firsts[k] = self.times[from];
    }

    /// Notes the first times anew.
    fn look(&mut self) {
        let firsts = self.times.iter().step_by(STRETCH);
        self.firsts
            .iter_mut()
            .zip(firsts)
            .for_each(|(to, first)| *to = *first);
    }
}

/// A stretch of slots.
type Line = [f32; STRETCH];

/// Lowers a stretch to a sum of two; of fixed length, so that it becomes a few vector instructions.
#[inline]
fn lower_line(places: &mut Line, time: f32, first: &Line, second: &Line) {
    for i in 0..STRETCH {
        places[i] = lower(places[i], time + (first[i] + second[i]));
    }
}

/// The lower of two times; unlike `f32::min` one instruction, as there are no NaNs.
#[inline]
fn lower(a: f32, b: f32) -> f32 {
    if b < a {
        b
    } else {
        a
    }
}

impl Table for Slots {
    fn time(&self, state: State, x: i64) -> f64 {
        match usize::try_from(x) {
            Ok(x) => f64::from(self.row(state)[x.min(self.width - 1)]) / self.scale,
            Err(_) => f64::INFINITY,
        }
    }
}
