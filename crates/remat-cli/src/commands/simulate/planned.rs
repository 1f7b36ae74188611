//! Plans of a recorded step, for the engine to follow.

use crate::arguments::Simulate;
use crate::failure::Failure;
use crate::log;
use crate::plan_file;
use remat_core::{Alignment, Bytes};
use remat_plan::step::{verify, Action, StepPlan};
use remat_sim::{Plan, PlanAction, PlannedArena};
use remat_trace::Event;
use std::path::Path;

/// Reads the plans asked for, and checks that they are plans of the log.
pub(super) fn read(simulation: &Simulate) -> Result<Vec<Plan>, Failure> {
    if simulation.plans.is_empty() {
        return Ok(Vec::new());
    }
    let [log] = &simulation.replays.logs[..] else {
        let logs = simulation.replays.logs.len();
        return Err(Failure::Usage(format!(
            "a plan is one of a single step, and {logs} logs are named; name one LOG with --plan"
        )));
    };
    if log == Path::new("-") {
        return Err(Failure::Usage(
            "with --plan the log is read twice, which standard input cannot be; name a file".into(),
        ));
    }
    let events = log::events(log)?;
    let plans = simulation.plans.iter();
    plans.map(|path| plan(simulation, path, &events)).collect()
}

fn plan(simulation: &Simulate, path: &Path, events: &[Event]) -> Result<Plan, Failure> {
    let place = path.display();
    let plan = plan_file::step_plan(path)?;
    verify(events, &plan).map_err(|fault| {
        let log = simulation.replays.logs[0].display();
        Failure::Input(format!(
            "{place}: no valid plan of {log}: {fault}; plan it anew with `remat plan step`"
        ))
    })?;
    let arena = arena(&plan).filter(|_| simulation.replays.pool.is_arena());
    if arena.is_none() && simulation.replays.pool.is_arena() {
        return Err(Failure::Input(format!(
            "{place}: has no addresses, which --pool arena needs; plan with `remat plan step --addresses`"
        )));
    }
    Ok(Plan {
        budget: Bytes(plan.budget_bytes),
        actions: plan.steps.iter().map(|&action| told(action)).collect(),
        arena,
    })
}

fn arena(plan: &StepPlan) -> Option<PlannedArena> {
    let addresses = plan.addresses.as_ref()?;
    Some(PlannedArena {
        bytes: Bytes(addresses.bytes),
        alignment: Alignment::new(addresses.alignment).ok()?,
        addresses: addresses.offsets.clone(),
    })
}

fn told(action: Action) -> PlanAction {
    match action {
        Action::Run(op) => PlanAction::Run(op),
        Action::RunInPlace(op) => PlanAction::RunInPlace(op),
        Action::Free(storage) => PlanAction::Drop(storage),
    }
}
