//! Recorded steps planned within budgets, and the plans run in the engine.

use crate::commands::plan::step::cheapest::cheapest;
use crate::commands::plan::step::known::{places, runs_of};
use crate::failure::{Failure, complain};
use crate::log::{self, Log};
use crate::plan_file;
use crate::standard_streams::is_standard;
use indicatif::ProgressBar;
use remat_core::Bytes;
use remat_figures::runs::THRASH_LIMIT;
use remat_figures::tables::planned::{Found, Planned, Point};
use remat_plan::step::{Planner, Search, Step, StepError, StepPlan, verify};
use remat_sim::{Budget, Program, STARTING_POLICIES};
use remat_trace::Event;
use std::fmt::Display;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

/// Plans each log within these parts of its memory, by so many rounds of search each.
pub(super) fn of<'a>(
    logs: &'a [Log],
    ratios: &[f64],
    rounds: u64,
    bar: &ProgressBar,
) -> Result<Vec<Planned<'a>>, Failure> {
    let mut falling = ratios.to_vec();
    falling.sort_by(|one, other| other.total_cmp(one));
    falling.dedup();
    let mut planned = Vec::new();
    for log in logs {
        if !can_be_read_again(&log.path) {
            bar.suspend(|| {
                complain(format_args!(
                    "remat: {}: no plan is drawn, since it is read once; name a file",
                    log.name
                ));
            });
            continue;
        }
        let events = log::events(&log.path)?;
        let plans = plans(log, &events, &falling, rounds, bar)?;
        let point = |&ratio: &f64| point(log, &events, &plans, ratio);
        let points = falling.iter().rev().map(point);
        planned.push(Planned {
            step: log.step(),
            points: points.collect::<Result<_, Failure>>()?,
        });
    }
    Ok(planned)
}

/// Whether a log is a file: what was read from a pipe cannot be read again.
fn can_be_read_again(path: &Path) -> bool {
    !is_standard(path) && fs::metadata(path).is_ok_and(|data| data.is_file())
}

/// The plans found, from large budgets to small.
fn plans(
    log: &Log,
    events: &[Event],
    falling: &[f64],
    rounds: u64,
    bar: &ProgressBar,
) -> Result<Vec<StepPlan>, Failure> {
    let step = Step::from_events(events).map_err(|error| fault(log, error))?;
    let program: Program = events.iter().collect();
    let places = places(events);
    let mut planner = Planner::new(&step);
    let mut plans: Vec<StepPlan> = Vec::new();
    for &ratio in falling {
        let budget = Budget::Ratio(ratio);
        let mut known = Vec::new();
        for name in STARTING_POLICIES {
            let policy = name.parse().map_err(|error| fault(log, error))?;
            let found = program.reruns(&log.base, policy, budget);
            let found = found.map_err(|unsound| fault(log, unsound))?;
            known.extend(found.map(|found| found.runs));
        }
        known.extend(plans.last().map(|plan| runs_of(plan, &places)));
        let search = Search {
            seed: 0,
            iterations: Some(rounds),
            known,
        };
        let watch = &mut |_: &_| ControlFlow::Continue(());
        match planner.plan(budget.bytes(&log.base), &search, watch) {
            Ok(plan) => plans.push(plan),
            Err(StepError::Budget { .. }) => {}
            Err(error) => return Err(fault(log, error)),
        }
        bar.inc(1);
    }
    Ok(plans)
}

/// The cheapest of the plans within a budget, run in the engine.
fn point(log: &Log, events: &[Event], plans: &[StepPlan], ratio: f64) -> Result<Point, Failure> {
    let budget: Bytes = Budget::Ratio(ratio).bytes(&log.base);
    let plans: Vec<&StepPlan> = plans.iter().collect();
    let found = cheapest(&plans, budget).map(|plan| -> Result<Found, Failure> {
        verify(events, &plan).map_err(|fault| {
            Failure::Input(format!(
                "{}: the plan for {} bytes is not valid, which is an error in Remat: {fault}",
                log.name, budget.0
            ))
        })?;
        let told = plan_file::told(&plan);
        let outcome = log.program.run_plan(&log.base, &told, THRASH_LIMIT);
        Ok(Found {
            outcome: outcome.map_err(|misfit| fault(log, misfit))?,
            bound_ns: plan.bound_ns,
        })
    });
    Ok(Point {
        ratio,
        budget,
        found: found.transpose()?,
    })
}

fn fault(log: &Log, reason: impl Display) -> Failure {
    Failure::Input(format!("{}: {reason}", log.name))
}
