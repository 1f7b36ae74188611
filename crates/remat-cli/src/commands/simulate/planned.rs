//! Plans of a recorded step, for the engine to follow.

use crate::arguments::Simulate;
use crate::failure::Failure;
use crate::log;
use crate::plan_file;
use crate::standard_streams::{check_inputs, is_standard};
use remat_plan::step::verify;
use remat_sim::Plan;
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
    if is_standard(log) {
        return Err(Failure::Usage(
            "with --plan the log is read twice, which standard input cannot be; name a file".into(),
        ));
    }
    check_inputs(&simulation.plans)?;
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
    let told = plan_file::told(&plan);
    match (simulation.replays.pool.is_arena(), &told.arena) {
        (true, None) => Err(Failure::Input(format!(
            "{place}: has no addresses, which --pool arena needs; plan with `remat plan step --addresses`"
        ))),
        (true, Some(_)) => Ok(told),
        (false, _) => Ok(Plan {
            arena: None,
            ..told
        }),
    }
}
