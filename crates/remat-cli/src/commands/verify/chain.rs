//! `remat verify chain`.

use crate::failure::Failure;
use crate::table::{Row, bytes};
use crate::{plan_file, table};
use remat_plan::chain::{Chain, Op, Verified, overhead, verify};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::io::{self, Write};
use std::path::Path;

/// The claims of a plan's file. Those that begin with `_` are not compared; a key that plans do not have is an error.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Claim {
    sequence: Vec<Op>,
    stages: Option<usize>,
    makespan: Option<f64>,
    peak_bytes: Option<u64>,
    budget_bytes: Option<u64>,
    #[serde(rename = "strategy")]
    _strategy: Option<IgnoredAny>,
    #[serde(rename = "slots")]
    _slots: Option<IgnoredAny>,
    #[serde(rename = "overhead")]
    _overhead: Option<IgnoredAny>,
    #[serde(rename = "planning_seconds")]
    _planning_seconds: Option<IgnoredAny>,
}

pub(crate) fn run(chain: &Path, plan: &Path, json: bool) -> Result<(), Failure> {
    let chain = plan_file::chain(chain)?;
    let place = plan.display();
    let claim: Claim = plan_file::plan(plan, "`remat plan chain --json` prints")?;
    let verified = checked(&chain, &claim).map_err(|reason| {
        Failure::Input(format!(
            "{place}: not valid: {reason}; plan this chain anew"
        ))
    })?;
    if json {
        print_json(&chain, &claim, verified)
    } else {
        table::print(&rows(&chain, &claim, verified))
    }
}

fn checked(chain: &Chain, claim: &Claim) -> Result<Verified, String> {
    /// Sums in another order differ by less.
    const SAME: f64 = 1e-9;
    if let Some(stages) = claim.stages.filter(|&stages| stages != chain.len()) {
        let there = chain.len();
        return Err(format!("it is for {stages} stages, the chain has {there}"));
    }
    let verified = verify(chain, &claim.sequence).map_err(|fault| fault.to_string())?;
    let (makespan, peak) = (verified.makespan, verified.peak_bytes);
    if let Some(said) = claim.makespan {
        let close = (said - makespan).abs() <= SAME * makespan;
        if !close && said != makespan {
            return Err(format!(
                "it says makespan {said:?}, the operations take {makespan:?}"
            ));
        }
    }
    if let Some(said) = claim.peak_bytes.filter(|&said| said != peak) {
        return Err(format!(
            "it says peak_bytes {said}, the operations reach {peak}"
        ));
    }
    match claim.budget_bytes {
        Some(budget) if peak > budget => Err(format!(
            "its peak of {peak} bytes is above its budget of {budget}"
        )),
        _ => Ok(verified),
    }
}

fn rows(chain: &Chain, claim: &Claim, verified: Verified) -> Vec<Row> {
    let mut rows = vec![
        ("valid", "yes".to_owned()),
        ("operations", claim.sequence.len().to_string()),
        ("makespan", table::time(verified.makespan)),
        (
            "overhead",
            format!("{:.4}", overhead(chain, verified.makespan)),
        ),
        ("peak", bytes(verified.peak_bytes)),
    ];
    rows.extend(claim.budget_bytes.map(|budget| ("budget", bytes(budget))));
    rows
}

fn print_json(chain: &Chain, claim: &Claim, verified: Verified) -> Result<(), Failure> {
    let line = serde_json::json!({
        "valid": true,
        "operations": claim.sequence.len(),
        "makespan": verified.makespan,
        "overhead": overhead(chain, verified.makespan),
        "peak_bytes": verified.peak_bytes,
        "budget_bytes": claim.budget_bytes,
    });
    writeln!(io::stdout(), "{line}").map_err(Failure::output)
}
