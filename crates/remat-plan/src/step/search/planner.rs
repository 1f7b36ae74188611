//! The planner of whole steps.

use super::bound::Bounds;
use super::cut::{Weights, mend};
use super::rounds::{FAR, Progress, Rounds, sweep};
use crate::step::model::error::StepError;
use crate::step::model::step::Step;
use crate::step::plan::actions::actions;
use crate::step::plan::step_plan::{PLAN_VERSION, StepPlan};
use crate::step::timeline::schedule::Schedule;
use remat_core::Bytes;
use remat_trace::Rerun;
use std::ops::ControlFlow;

/// How long to search, and from where.
#[derive(Clone, Debug, Default)]
pub struct Search {
    /// The seed of all that is random.
    pub seed: u64,
    /// The most rounds, or no limit but the watcher's word.
    pub iterations: Option<u64>,
    /// Known schedules. The plan costs at most as much as the best of those that fit.
    pub known: Vec<Vec<Rerun>>,
}

/// A planner of one step. Plans of several budgets share what is worked out.
#[derive(Debug)]
pub struct Planner<'a> {
    step: &'a Step,
    plain: Schedule<'a>,
}

/// Attempts at a budget, after which a larger one is tried.
const ATTEMPTS: u32 = 16;
/// A descent aims at a budget that is smaller by this part: where the last bytes are missing, a schedule has to change
/// in many places, and not in one.
const BEYOND: u64 = 16;
/// Where known schedules and cuts alone lead to one that takes this part of the step's time more than the bound, a
/// descent is tried as well.
const GAP: u64 = 4;
/// The most descents. Chance leads some of them to schedules that cost two or three times what others do.
const DESCENTS: u32 = 4;

impl<'a> Planner<'a> {
    /// A planner of this step.
    pub fn new(step: &'a Step) -> Planner<'a> {
        Planner {
            step,
            plain: Schedule::new(step),
        }
    }

    /// Plans the step within a budget. The watcher ends the search by [`ControlFlow::Break`]; the plan is then the best
    /// found so far.
    ///
    /// # Errors
    /// [`StepError::Budget`] if no plan was found, [`StepError::Overwritten`] if there is none at all.
    pub fn plan(
        &mut self,
        budget: Bytes,
        search: &Search,
        watch: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
    ) -> Result<StepPlan, StepError> {
        let mut bounds = Bounds::new(&self.plain, budget.0);
        let mut rounds = Rounds::new(&self.plain, budget.0, search.seed, watch);
        rounds.progress.bound_ns = bounds.as_ref().map_or(0, Bounds::ns);
        let mut best = match bounds {
            Some(_) => self.start(search, &mut rounds),
            None => self.descend(&mut rounds),
        };
        if !best.is_valid() {
            return Err(StepError::Overwritten);
        }
        if best.peak() > budget.0 {
            let smallest = Bytes(best.peak());
            return Err(StepError::Budget { budget, smallest });
        }
        rounds.progress.recompute_ns = Some(best.again_ns());
        if let Some(bounds) = &mut bounds {
            bounds.tighten(best.again_ns() as f64, || rounds.goes_on());
            rounds.progress.bound_ns = bounds.ns();
        }
        rounds.run(&mut best, search.iterations);
        let Progress {
            iterations,
            bound_ns,
            ..
        } = rounds.progress;
        Ok(self.written(&mut best, budget, bound_ns, search.seed, iterations))
    }

    /// The plan of the smallest peak that is found without regard to time. Its budget is its peak.
    ///
    /// It depends on the step and the seed alone, so a caller that refuses smaller budgets names one size for all.
    ///
    /// # Errors
    /// [`StepError::Overwritten`] if there is no plan at all.
    pub fn smallest(
        &mut self,
        seed: u64,
        watch: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
    ) -> Result<StepPlan, StepError> {
        let mut rounds = Rounds::new(&self.plain, 0, seed, watch);
        let mut best = self.descend(&mut rounds);
        if !best.is_valid() {
            return Err(StepError::Overwritten);
        }
        let smallest = Bytes(best.peak());
        Ok(self.written(&mut best, smallest, 0, seed, 0))
    }

    fn written(
        &self,
        best: &mut Schedule<'_>,
        budget: Bytes,
        bound_ns: u64,
        seed: u64,
        iterations: u64,
    ) -> StepPlan {
        StepPlan {
            version: PLAN_VERSION,
            budget_bytes: budget.0,
            peak_bytes: best.peak(),
            cost_ns: self.step.cost_ns(),
            recompute_ns: best.again_ns(),
            bound_ns: self.step.cost_ns() + bound_ns,
            seed,
            iterations,
            ops: self.step.numbered.len() as u64,
            storages: self.step.storages.len() as u64,
            steps: actions(best),
            addresses: None,
        }
    }

    /// The best of the known schedules, of one made by cuts alone and, where these are far from the bound, of one found
    /// by a descent; one of as small a peak as can be found if none fits. Known ones that fit are looked at in any
    /// case, unless they cost several times as much as another one.
    fn start(&self, search: &Search, rounds: &mut Rounds<'_>) -> Schedule<'a> {
        let weights = Weights {
            shift: 0.1,
            noise: 0.0,
        };
        let mut known: Vec<&[Rerun]> = search.known.iter().map(Vec::as_slice).collect();
        known.sort_by_cached_key(|known| self.cost_of(known));
        let dear = u128::from(rounds.progress.bound_ns + self.step.cost_ns());
        let (mut best, mut open) = (None, Vec::new());
        for known in known {
            if self.cost_of(known) > dear {
                open.push(known); // thinning it alone would take the time of a search
                continue;
            }
            let mut schedule = self.following(known);
            if schedule.exceeds(rounds.budget) || !schedule.is_valid() {
                open.push(known);
            } else {
                best = cheaper(best, rounds.rival(schedule, weights));
            }
        }
        if best.is_none() || rounds.goes_on() {
            best = cheaper(best, rounds.rival(self.plain.clone(), weights));
        }
        let far = rounds.progress.bound_ns + self.step.cost_ns() / GAP;
        let is_far = |best: &Schedule<'_>| best.again_ns() > far;
        let mut least = None;
        for descent in 0..DESCENTS {
            if !best.as_ref().is_none_or(is_far) || (descent > 0 && !rounds.goes_on()) {
                break;
            }
            let mut found = self.descend(rounds);
            if found.is_valid() && found.peak() <= rounds.budget {
                best = cheaper(best, Some(found));
                rounds.progress.recompute_ns = best.as_ref().map(Schedule::again_ns);
            } else if best.is_none() {
                least = Some(found);
                break;
            }
        }
        for known in open {
            let cost = best.as_ref().map(|best| u128::from(best.again_ns()));
            if cost.is_some_and(|cost| self.cost_of(known) / u128::from(FAR) > cost) {
                continue; // no rival, and to find that out it would have to be made to fit
            }
            let mut schedule = self.following(known);
            let fits = !schedule.exceeds(rounds.budget) && schedule.is_valid();
            if cost.is_none() || fits || rounds.goes_on() {
                best = cheaper(best, rounds.rival(schedule, weights));
            }
        }
        best.or(least).unwrap_or_else(|| self.plain.clone())
    }

    /// A schedule of as small a peak as can be found, or one that fits: the budget falls by halves of what it still
    /// lacks, and each schedule begins as the one before it.
    fn descend(&self, rounds: &mut Rounds<'_>) -> Schedule<'a> {
        let budget = rounds.budget;
        let mut best = self.plain.clone();
        mend(&mut best);
        let near = (best.peak() / 1024).max(1);
        let mut low = budget - budget / BEYOND;
        let mut failures = 0;
        while best.peak() > budget && best.peak().saturating_sub(low) > near {
            if !rounds.goes_on() {
                break;
            }
            rounds.budget = low + (best.peak() - low) / 2;
            let from = if failures % 2 == 0 {
                &best
            } else {
                &self.plain
            };
            let weights = rounds.random_weights();
            match rounds.fitted(from.clone(), weights) {
                Some(found) => (best, failures) = (found, 0),
                None if failures < ATTEMPTS => failures += 1,
                None => (low, failures) = (rounds.budget, 0),
            }
        }
        rounds.budget = budget;
        best
    }

    /// Nanoseconds of known runs.
    fn cost_of(&self, known: &[Rerun]) -> u128 {
        let ops = known.iter().map(|run| run.op as usize);
        let ops = ops.filter_map(|op| self.step.numbered.get(op));
        ops.map(|&op| u128::from(self.step.ops[op as usize].cost))
            .sum()
    }

    /// The schedule of known runs, without those that nothing reads.
    fn following(&self, known: &[Rerun]) -> Schedule<'a> {
        let mut schedule = self.plain.clone();
        // After the last event comes the end of the step.
        let end = self.step.ops.len() as u32 - 1;
        for &Rerun { op, event } in known {
            let slot = self.step.at_event.get(event as usize);
            let slot = slot.copied().unwrap_or(end);
            if let Some(&op) = self.step.numbered.get(op as usize) {
                if schedule.may_run(op, slot) {
                    schedule.add(op, slot);
                }
            }
        }
        sweep(&mut schedule);
        schedule
    }
}

fn cheaper<'a>(one: Option<Schedule<'a>>, other: Option<Schedule<'a>>) -> Option<Schedule<'a>> {
    let both = one.into_iter().chain(other);
    both.min_by_key(Schedule::again_ns)
}
