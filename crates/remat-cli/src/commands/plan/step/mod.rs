//! `remat plan step`.

pub(in crate::commands) mod cheapest;
pub(in crate::commands) mod known;
mod recorded;
mod report;
mod search;

use crate::arguments::PlanStep;
use crate::failure::{Failure, complain};
use crate::interrupt::Watch;
use crate::plan_file;
use crate::standard_streams::is_standard;
use cheapest::cheapest;
use recorded::Recorded;
use remat_core::Alignment;
use remat_plan::step::{Fault, Step, StepPlan, place, verify};
use report::Told;
use search::{Found, Search};
use std::io::{self, Write};
use std::path::Path;

pub(crate) fn run(wanted: &PlanStep, watch: &Watch) -> Result<(), Failure> {
    let recorded = Recorded::read(&wanted.log)?;
    let budgets = recorded.budgets(wanted);
    if let Some(out) = &wanted.out {
        check_out(wanted, out, budgets.len())?;
    }
    let step = Step::from_events(&recorded.events).map_err(|error| recorded.fault(error))?;
    let noted = watch.note_first();
    let mut search = Search::new(wanted, &recorded, &step, &noted);
    let mut found: Vec<Found> = Vec::new();
    for &budget in &budgets {
        found.push(search.within(budget)?);
        if noted.came() {
            break;
        }
    }
    drop(search);
    let told = chosen(&recorded, found, wanted.addresses)?;
    if told.iter().all(|told| told.plan.is_none()) {
        noted.obey();
    }
    drop(noted);
    tell(wanted, &recorded, &told)?;
    if told.len() < budgets.len() {
        let left = budgets.len() - told.len();
        complain(format_args!(
            "remat: interrupted; {left} smaller budgets were not searched"
        ));
    }
    Ok(())
}

/// Checks that the plan of so many budgets can be written, before it is searched for.
fn check_out(wanted: &PlanStep, out: &Path, budgets: usize) -> Result<(), Failure> {
    if budgets > 1 {
        return Err(Failure::Usage(format!(
            "--out takes one plan, {budgets} budgets are given; name one, or leave --out away"
        )));
    }
    if wanted.json && is_standard(out) {
        return Err(Failure::Usage(
            "--out - and --json both write to standard output; name a file, or leave one of them away".into(),
        ));
    }
    if plan_file::are_one(out, &wanted.log) {
        let out = out.display();
        return Err(Failure::Usage(format!(
            "--out {out}: the recorded step is read from there; name another file"
        )));
    }
    plan_file::check_writable(out)
}

/// The cheapest plan for each budget of all that were found, verified.
fn chosen(
    recorded: &Recorded,
    found: Vec<Found>,
    alignment: Option<Alignment>,
) -> Result<Vec<Told>, Failure> {
    let plans = found.iter().filter_map(|found| found.planned.as_ref().ok());
    let plans: Vec<&StepPlan> = plans.collect();
    let best = |found: &Found| {
        let plan = cheapest(&plans, found.budget.bytes);
        let placed = |plan| match alignment {
            Some(alignment) => place(&recorded.events, plan, alignment.bytes()),
            None => Ok(plan),
        };
        plan.map(|plan| {
            let budget = plan.budget_bytes;
            placed(plan).map_err(|fault| invalid(recorded, budget, &fault))
        })
        .transpose()
    };
    let best: Vec<Option<StepPlan>> = found.iter().map(best).collect::<Result<_, _>>()?;
    let mut each = best.iter().flatten();
    each.try_for_each(|plan| check(recorded, plan))?;
    let told = found.into_iter().zip(best).map(|(found, plan)| Told {
        budget: found.budget,
        online: found.online,
        unmet: found.planned.err(),
        plan,
    });
    Ok(told.collect())
}

fn check(recorded: &Recorded, plan: &StepPlan) -> Result<(), Failure> {
    let verified = verify(&recorded.events, plan).map(drop);
    verified.map_err(|fault| invalid(recorded, plan.budget_bytes, &fault))
}

fn invalid(recorded: &Recorded, budget: u64, fault: &Fault) -> Failure {
    match fault {
        Fault::TooLarge => recorded.fault(fault),
        _ => recorded.fault(format!(
            "the plan for {budget} bytes is not valid, which is an error in Remat: {fault}"
        )),
    }
}

fn tell(wanted: &PlanStep, recorded: &Recorded, told: &[Told]) -> Result<(), Failure> {
    let unmet = told.iter().filter(|told| told.plan.is_none());
    let mut reasons = unmet.filter_map(|told| told.unmet.as_ref());
    if told.iter().all(|told| told.plan.is_none()) {
        if let Some(reason) = reasons.next_back() {
            return Err(recorded.fault(reason));
        }
    }
    for reason in reasons {
        complain(format_args!("remat: {}: {reason}", recorded.name));
    }
    let only = match told {
        [told] => told.plan.as_ref(),
        _ => None,
    };
    // Before all that is printed: where nobody reads it, the command ends there.
    if let (Some(out), Some(plan)) = (&wanted.out, only) {
        plan_file::write_step_plan(out, plan)?;
    }
    let text = match only {
        _ if wanted.json => report::lines(recorded, told),
        Some(plan) => report::table(recorded, &told[0], plan),
        None => report::curve(recorded, wanted.seed, told),
    };
    if wanted.out.as_deref().is_some_and(is_standard) {
        // The plan may go on while nobody reads what is told of it.
        let _ = io::stderr().write_all(text.as_bytes());
        return Ok(());
    }
    let written = io::stdout().write_all(text.as_bytes());
    written.map_err(Failure::output)
}
