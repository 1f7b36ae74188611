//! `remat min-budget`.

use crate::arguments::MinBudget;
use crate::failure::Failure;
use crate::simulate::{self, Log};
use crate::{pool, progress, selective, table};
use indicatif::ProgressBar;
use remat_core::Bytes;
use remat_sim::{in_order, Eviction, Probe, Setting, Smallest, Unsound};
use std::io::{self, Write};
use std::ops::ControlFlow;

/// Runs that a bisection takes to a 4096th of the memory without a limit.
const RUNS: u64 = 13;

pub(crate) fn run(search: &MinBudget) -> Result<(), Failure> {
    pool::check(&search.pool, &search.policies)?;
    selective::check(search.dealloc, &search.policies)?;
    let logs = simulate::read(&search.logs)?;
    selective::check_logs(&logs, &search.policies)?;
    let cases: Vec<(&Log, Eviction)> = logs
        .iter()
        .flat_map(|log| search.policies.iter().map(move |&policy| (log, policy)))
        .collect();
    let bar = progress::runs(cases.len() * RUNS as usize);
    let find = |index: usize| {
        let (log, policy) = cases[index];
        find(search, log, policy, &bar)
    };
    let ended = in_order(cases.len(), search.jobs.threads(), find, |index, found| {
        let (log, policy) = cases[index];
        let first = index == 0 || !std::ptr::eq(cases[index - 1].0, log);
        let shown = match found {
            Ok(found) => {
                let text = describe(search, log, policy, &found, first);
                bar.suspend(|| io::stdout().write_all(text.as_bytes()))
                    .map_err(Failure::output)
            }
            Err(unsound) => Err(Failure::Input(format!("{}: {unsound}", log.name))),
        };
        match shown {
            Ok(()) => ControlFlow::Continue(()),
            Err(failure) => ControlFlow::Break(failure),
        }
    });
    bar.finish_and_clear();
    match ended {
        ControlFlow::Continue(()) => io::stdout().flush().map_err(Failure::output),
        ControlFlow::Break(failure) => Err(failure),
    }
}

fn find(
    search: &MinBudget,
    log: &Log,
    policy: Eviction,
    bar: &ProgressBar,
) -> Result<Smallest, Unsound> {
    let setting = Setting {
        dealloc: search.dealloc.into(),
        thrash_limit: search.thrash_limit,
        seed: search.seed,
        ..pool::setting(&search.pool, policy)
    };
    let within = search.within.unwrap_or(simulate::within(log));
    log.program
        .smallest_budget(&log.base, &setting, within, |_: Probe| bar.inc(1))
}

fn describe(
    search: &MinBudget,
    log: &Log,
    policy: Eviction,
    found: &Smallest,
    first: bool,
) -> String {
    let memory = log.base.memory;
    if search.json {
        let line = serde_json::json!({
            "log": log.name,
            "policy": policy.to_string(),
            "dealloc": search.dealloc.name(),
            "pool": search.pool.name(),
            "base_memory": memory.0,
            "min_budget": found.works.map(|bytes| bytes.0),
            "ratio": found.works.map(|bytes| ratio(bytes, memory)),
            "unmet": found.fails.0,
            "runs": found.runs,
        });
        return format!("{line}\n");
    }
    let width = table::POLICY;
    let heading = match first {
        true => format!(
            "\n{}: {memory} without a limit\n{:width$}   min budget  ratio   runs\n",
            log.name, "policy"
        ),
        false => String::new(),
    };
    let (budget, ratio) = match found.works {
        Some(bytes) => (bytes.to_string(), format!("{:.3}", ratio(bytes, memory))),
        None => ("none".into(), "-".into()),
    };
    format!(
        "{heading}{:width$}  {budget:>11}  {ratio:>5}  {:>5}\n",
        policy.to_string(),
        found.runs
    )
}

fn ratio(bytes: Bytes, memory: Bytes) -> f64 {
    bytes.0 as f64 / memory.0.max(1) as f64
}
