//! Rounds of a large neighbourhood search: a part of the runs is taken out, cuts bring the schedule back into the
//! budget, and what it does without is pruned.

use super::cut::{Cutter, Weights, mend};
use super::prune::{all_runs, is_useful, prune, take_out};
use super::rng::Rng;
use crate::step::timeline::moment::Moment;
use crate::step::timeline::schedule::Schedule;
use std::ops::ControlFlow;

/// Cuts in a row that lower no peak.
const PATIENCE: u32 = 24;
/// Pruning seldom brings the cost of a schedule down to a part smaller than one by this.
pub(super) const FAR: u64 = 4;
/// The most runs of a window that is emptied.
const WINDOW: usize = 250;
/// Parts of the cost of a run that it is weighed with where it only moves.
const SHIFTS: [f64; 4] = [0.0, 0.1, 0.5, 1.0];

/// The state of a search, told after each cut and for each run that is tried without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Rounds so far.
    pub iterations: u64,
    /// Nanoseconds of runs again in the best plan so far, if there is one.
    pub recompute_ns: Option<u64>,
    /// Nanoseconds of runs again that every plan takes at least.
    pub bound_ns: u64,
}

/// Told how a search goes; it ends the search by [`ControlFlow::Break`].
pub(super) type Watch<'w> = &'w mut dyn FnMut(&Progress) -> ControlFlow<()>;

/// A search within one budget.
pub(super) struct Rounds<'w> {
    pub(super) budget: u64,
    cutter: Cutter,
    rng: Rng,
    watch: Watch<'w>,
    pub(super) progress: Progress,
    /// Whether the watcher ended the search.
    stopped: bool,
}

impl<'w> Rounds<'w> {
    pub(super) fn new(
        plain: &Schedule<'_>,
        budget: u64,
        seed: u64,
        watch: Watch<'w>,
    ) -> Rounds<'w> {
        Rounds {
            budget,
            cutter: Cutter::new(plain),
            rng: Rng::new(seed),
            watch,
            progress: Progress {
                iterations: 0,
                recompute_ns: None,
                bound_ns: 0,
            },
            stopped: false,
        }
    }

    /// Whether the search goes on; the watcher is asked.
    pub(super) fn goes_on(&mut self) -> bool {
        self.stopped = self.stopped || (self.watch)(&self.progress).is_break();
        !self.stopped
    }

    /// A schedule that fits, from another one.
    pub(super) fn fitted<'a>(
        &mut self,
        mut schedule: Schedule<'a>,
        weights: Weights,
    ) -> Option<Schedule<'a>> {
        let fits = self.fit(&mut schedule, weights);
        fits.then(|| self.thinned(schedule))
    }

    /// A schedule that fits, from another one, unless it costs so much more than the best so far that it will hardly
    /// lead to a better one.
    pub(super) fn rival<'a>(
        &mut self,
        mut schedule: Schedule<'a>,
        weights: Weights,
    ) -> Option<Schedule<'a>> {
        if !self.fit(&mut schedule, weights) {
            return None;
        }
        let best = self.progress.recompute_ns.unwrap_or(u64::MAX);
        if schedule.again_ns() / FAR > best {
            return None;
        }
        self.progress.recompute_ns = Some(best.min(schedule.again_ns()));
        let rival = self.thinned(schedule);
        self.progress.recompute_ns = Some(best.min(rival.again_ns()));
        Some(rival)
    }

    /// Takes out what a schedule that fits does without.
    fn thinned<'a>(&mut self, mut schedule: Schedule<'a>) -> Schedule<'a> {
        let runs = all_runs(&schedule);
        prune(&mut schedule, self.budget, runs, || self.goes_on());
        schedule.keep();
        schedule
    }

    /// Weights of which something is left to chance.
    pub(super) fn random_weights(&mut self) -> Weights {
        let shift = SHIFTS[self.rng.below(SHIFTS.len())];
        Weights { shift, noise: 0.3 }
    }

    /// Rounds until the watcher ends them, there were so many, or the schedule meets the bound.
    pub(super) fn run(&mut self, schedule: &mut Schedule<'_>, most: Option<u64>) {
        loop {
            self.progress.recompute_ns = Some(schedule.again_ns());
            let enough = most.is_some_and(|most| self.progress.iterations >= most)
                || schedule.again_ns() <= self.progress.bound_ns;
            if !self.goes_on() || enough {
                return;
            }
            self.improve(schedule);
            self.progress.iterations += 1;
        }
    }

    /// A round: the schedule costs at most as much as before.
    fn improve(&mut self, schedule: &mut Schedule<'_>) {
        let (mark, before) = (schedule.mark(), schedule.again_ns());
        empty(schedule, &mut self.rng);
        let weights = self.random_weights();
        let fits = self.fit(schedule, weights);
        if fits {
            let added = schedule.added_since(mark);
            prune(schedule, self.budget, added, || self.goes_on());
        }
        if fits && schedule.again_ns() <= before {
            schedule.keep();
        } else {
            schedule.undo_to(mark);
        }
    }

    /// Cuts until the schedule fits. Returns whether it does.
    fn fit(&mut self, schedule: &mut Schedule<'_>, weights: Weights) -> bool {
        let (mut least, mut patience) = (u64::MAX, PATIENCE);
        mend(schedule);
        loop {
            let peak = schedule.peak();
            if peak <= self.budget {
                return schedule.is_valid();
            }
            if peak < least {
                (least, patience) = (peak, PATIENCE);
            } else if patience == 0 {
                return false;
            }
            patience -= 1;
            let cut = self
                .cutter
                .cut(schedule, self.budget, weights, &mut self.rng);
            if !cut || !self.goes_on() {
                return false;
            }
        }
    }
}

/// Takes out runs: all of a window of slots, or one in seven of a wider one.
fn empty(schedule: &mut Schedule<'_>, rng: &mut Rng) {
    let runs = all_runs(schedule);
    if runs.is_empty() {
        return;
    }
    let (most, part) = if rng.unit() < 0.5 {
        (WINDOW.min(runs.len().div_ceil(4)), 1.0)
    } else {
        (6 * WINDOW, 0.15)
    };
    let width = 1 + rng.below(most);
    let from = rng.below(runs.len() + width);
    let window = from.saturating_sub(width)..from.min(runs.len());
    for &(op, slot) in &runs[window] {
        if schedule.has(op, slot) && (part >= 1.0 || rng.unit() < part) {
            take_out(schedule, op, slot);
        }
    }
}

/// Takes out runs whose results nothing reads.
pub(crate) fn sweep(schedule: &mut Schedule<'_>) {
    for (op, slot) in all_runs(schedule).into_iter().rev() {
        if schedule.has(op, slot) && !is_useful(schedule, Moment::new(slot, op)) {
            take_out(schedule, op, slot);
        }
    }
}
