//! The search for the plan of one budget after the other.

use super::known::{self, Online};
use super::recorded::{Asked, Recorded};
use crate::arguments::PlanStep;
use crate::failure::Failure;
use crate::interrupt::Noted;
use crate::progress;
use remat_plan::step::{Planner, Progress, Step, StepError, StepPlan};
use remat_sim::STARTING_POLICIES;
use remat_trace::Rerun;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// The findings for one budget.
pub(super) struct Found {
    pub(super) budget: Asked,
    /// The policy that recomputes least, if any fits.
    pub(super) online: Option<Online>,
    /// The plan; or that there is none within the budget.
    pub(super) planned: Result<StepPlan, StepError>,
}

/// Searches, from large budgets to small.
pub(super) struct Search<'a> {
    wanted: &'a PlanStep,
    recorded: &'a Recorded,
    planner: Planner<'a>,
    noted: &'a Noted<'a>,
    /// Events after ops; see [`known::places`].
    places: Vec<u32>,
    /// The schedule found last.
    last: Option<Vec<Rerun>>,
    cost: u64,
}

impl<'a> Search<'a> {
    pub(super) fn new(
        wanted: &'a PlanStep,
        recorded: &'a Recorded,
        step: &'a Step,
        noted: &'a Noted<'a>,
    ) -> Search<'a> {
        Search {
            wanted,
            recorded,
            planner: Planner::new(step),
            noted,
            places: known::places(&recorded.events),
            last: None,
            cost: step.cost_ns(),
        }
    }

    /// Searches a plan within a budget, until the time is over or Ctrl-C is pressed.
    ///
    /// # Errors
    /// Faults of the step. That the budget cannot be met is a finding.
    pub(super) fn within(&mut self, budget: Asked) -> Result<Found, Failure> {
        let mut online = Vec::new();
        for policy in STARTING_POLICIES {
            if !self.noted.came() {
                online.extend(Online::of(self.recorded, policy, budget)?);
            }
        }
        let mut known: Vec<Vec<Rerun>> = online
            .iter()
            .map(|online| online.reruns.runs.clone())
            .collect();
        known.extend(self.last.take());
        let planned = self.plan(budget, known);
        match &planned {
            Ok(plan) => self.last = Some(known::runs_of(plan, &self.places)),
            Err(StepError::Budget { .. }) => {}
            Err(error) => return Err(self.recorded.fault(error)),
        }
        Ok(Found {
            budget,
            online: online.into_iter().min_by_key(|online| online.reruns.cost),
            planned,
        })
    }

    fn plan(&mut self, budget: Asked, known: Vec<Vec<Rerun>>) -> Result<StepPlan, StepError> {
        let (started, iterations) = (Instant::now(), self.wanted.iterations);
        let limit = Duration::from_secs_f64(self.wanted.seconds);
        let parts = iterations.unwrap_or(limit.as_millis() as u64);
        let mut bar = progress::Search::new(&budget.bytes.to_string(), parts);
        let (noted, cost) = (self.noted, self.cost);
        let mut watch = |progress: &Progress| {
            let part = match iterations {
                Some(_) => progress.iterations,
                None => started.elapsed().as_millis() as u64,
            };
            bar.show(part, || state(progress, cost));
            let over = iterations.is_none()
                && started.elapsed() >= limit
                && progress.recompute_ns.is_some();
            if over || noted.came() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        };
        let search = remat_plan::step::Search {
            seed: self.wanted.seed,
            iterations,
            known,
        };
        self.planner.plan(budget.bytes, &search, &mut watch)
    }
}

/// The progress of a search in words.
fn state(progress: &Progress, cost: u64) -> String {
    let rounds = progress.iterations;
    match progress.recompute_ns {
        None => format!("round {rounds}, no plan yet"),
        Some(again) => {
            let part = |time: u64, of: u64| 100.0 * time as f64 / of.max(1) as f64;
            let bound = cost.saturating_add(progress.bound_ns);
            let gap = again.saturating_sub(progress.bound_ns);
            format!(
                "round {rounds}, overhead {:.2}%, gap {:.2}%",
                part(again, cost),
                part(gap, bound)
            )
        }
    }
}
