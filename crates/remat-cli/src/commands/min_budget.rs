//! `remat min-budget`.

use crate::arguments::MinBudget;
use crate::failure::Failure;
use crate::log::{self, Log, Place};
use crate::terminal::plain;
use crate::{progress, table};
use remat_core::Bytes;
use remat_sim::{Eviction, Probe, Smallest};

/// Runs that a bisection takes to a 4096th of the memory without a limit.
const RUNS: u64 = 13;

pub(crate) fn run(search: &MinBudget) -> Result<(), Failure> {
    let logs = search.replays.read_logs(&search.policies)?;
    let cases: Vec<(&Log, Eviction)> = logs
        .iter()
        .flat_map(|log| search.policies.iter().map(move |&policy| (log, policy)))
        .collect();
    let bar = progress::runs(cases.len() * RUNS as usize);
    let find = |log: &Log, &policy: &Eviction| {
        let setting = search.replays.setting(policy);
        let within = search.within.unwrap_or(log.within());
        log.program
            .smallest_budget(&log.base, &setting, within, |_: Probe| bar.inc(1))
    };
    log::print(
        &cases,
        search.replays.jobs.threads(),
        &bar,
        find,
        |index, found, place| {
            let (log, policy) = cases[index];
            if search.json {
                return line(search, log, policy, found);
            }
            let row = row(log, policy, found);
            match place {
                Place::First => heading(log) + &row,
                Place::Later => row,
            }
        },
    )
}

fn line(search: &MinBudget, log: &Log, policy: Eviction, found: &Smallest) -> String {
    let memory = log.base.memory;
    let line = serde_json::json!({
        "log": log.name,
        "policy": policy.to_string(),
        "dealloc": search.replays.dealloc.name(),
        "engine": search.replays.engine().name(),
        "pool": search.replays.pool.name(),
        "base_memory": memory.0,
        "min_budget": found.works.map(|bytes| bytes.0),
        "ratio": found.works.map(|bytes| ratio(bytes, memory)),
        "unmet": found.fails.0,
        "runs": found.runs,
    });
    format!("{line}\n")
}

fn heading(log: &Log) -> String {
    let (name, memory, width) = (plain(&log.name), log.base.memory, table::POLICY);
    format!(
        "\n{name}: {memory} without a limit\n{:width$}   min budget  ratio   runs\n",
        "policy"
    )
}

fn row(log: &Log, policy: Eviction, found: &Smallest) -> String {
    let (budget, ratio) = match found.works {
        Some(bytes) => (
            bytes.to_string(),
            format!("{:.3}", ratio(bytes, log.base.memory)),
        ),
        None => ("none".into(), "-".into()),
    };
    let (width, policy, runs) = (table::POLICY, policy.to_string(), found.runs);
    format!("{policy:width$}  {budget:>11}  {ratio:>5}  {runs:>5}\n")
}

fn ratio(bytes: Bytes, memory: Bytes) -> f64 {
    bytes.0 as f64 / memory.0.max(1) as f64
}
