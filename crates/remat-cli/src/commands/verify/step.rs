//! `remat verify step`.

use crate::failure::Failure;
use crate::table::{Row, bytes};
use crate::{log, plan_file, table};
use remat_plan::step::{StepPlan, Verified, verify};
use std::io::{self, Write};
use std::path::Path;

pub(crate) fn run(recorded: &Path, plan: &Path, json: bool) -> Result<(), Failure> {
    let events = log::events(recorded)?;
    let place = plan.display();
    let plan = plan_file::step_plan(plan)?;
    let verified = verify(&events, &plan)
        .map_err(|fault| Failure::Input(format!("{place}: not valid: {fault}")))?;
    if json {
        print_json(&plan, &verified)
    } else {
        table::print(&rows(&plan, &verified))
    }
}

fn rows(plan: &StepPlan, verified: &Verified) -> Vec<Row> {
    let mut rows = vec![
        ("valid", "yes".to_owned()),
        ("ops", verified.ops.to_string()),
        ("runs again", verified.reruns.to_string()),
        ("drops", verified.frees.to_string()),
        ("takes", table::duration(verified.cost_ns)),
        ("takes again", table::duration(verified.recompute_ns)),
        ("peak", bytes(verified.peak_bytes)),
        ("budget", bytes(plan.budget_bytes)),
    ];
    rows.extend(
        plan.addresses
            .as_ref()
            .map(|addresses| ("arena", bytes(addresses.bytes))),
    );
    rows
}

fn print_json(plan: &StepPlan, verified: &Verified) -> Result<(), Failure> {
    let line = serde_json::json!({
        "valid": true,
        "ops": verified.ops,
        "reruns": verified.reruns,
        "frees": verified.frees,
        "cost_ns": verified.cost_ns,
        "recompute_ns": verified.recompute_ns,
        "peak_bytes": verified.peak_bytes,
        "budget_bytes": plan.budget_bytes,
        "arena_bytes": plan.addresses.as_ref().map(|addresses| addresses.bytes),
    });
    writeln!(io::stdout(), "{line}").map_err(Failure::output)
}
