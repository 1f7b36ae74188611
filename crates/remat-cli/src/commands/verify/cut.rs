//! `remat verify cut`.

use crate::failure::Failure;
use crate::table::{Row, bytes};
use crate::{plan_file, table};
use remat_plan::cut::{Claim, Verified, verify};
use std::io::{self, Write};
use std::path::Path;

pub(crate) fn run(graph: &Path, plan: &Path, json: bool) -> Result<(), Failure> {
    let graph = plan_file::graph(graph)?;
    let place = plan.display();
    let claim: Claim = plan_file::plan(plan, "`remat plan cut --json` prints")?;
    let verified = verify(&graph, &claim)
        .map_err(|fault| Failure::Input(format!("{place}: not valid: {fault}")))?;
    if json {
        print_json(&claim, &verified)
    } else {
        table::print(&rows(&claim, &verified))
    }
}

fn rows(claim: &Claim, verified: &Verified) -> Vec<Row> {
    let mut rows = vec![
        ("valid", "yes".to_owned()),
        ("saved", claim.saved.len().to_string()),
        ("saved bytes", bytes(verified.saved_bytes)),
        ("cost", bytes(verified.cost)),
        ("recomputed", verified.recomputed.len().to_string()),
        ("takes again", table::duration(verified.recompute_ns)),
        ("peak", bytes(verified.peak_bytes)),
    ];
    rows.extend(claim.budget_bytes.map(|budget| ("budget", bytes(budget))));
    rows
}

fn print_json(claim: &Claim, verified: &Verified) -> Result<(), Failure> {
    let line = serde_json::json!({
        "valid": true,
        "saved_bytes": verified.saved_bytes,
        "recomputed": verified.recomputed,
        "cost": verified.cost,
        "recompute_ns": verified.recompute_ns,
        "peak_bytes": verified.peak_bytes,
        "budget_bytes": claim.budget_bytes,
    });
    writeln!(io::stdout(), "{line}").map_err(Failure::output)
}
