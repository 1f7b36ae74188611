//! `remat simulate`.

use crate::arguments::Simulate;
use crate::failure::Failure;
use crate::progress::{self, Shown};
use crate::simulate_bounds::{self, Bounds};
use crate::{pool, selective, simulate_json, simulate_table};
use remat_core::Bytes;
use remat_sim::{sweep, Base, Budget, Job, Outcome, Program, Setting};
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// A log that was read, and its run without a limit.
pub(crate) struct Log {
    pub(crate) name: String,
    pub(crate) program: Program,
    pub(crate) base: Base,
}

pub(crate) fn run(simulation: &Simulate) -> Result<(), Failure> {
    pool::check(&simulation.pool, &simulation.policies)?;
    selective::check(simulation.dealloc, &simulation.policies)?;
    let logs = read(&simulation.logs)?;
    selective::check_logs(&logs, &simulation.policies)?;
    let jobs: Vec<(&Log, Job)> = logs
        .iter()
        .flat_map(|log| settings(simulation).map(move |setting| (log, job(log, setting))))
        .collect();
    let plain: Vec<Job> = jobs.iter().map(|&(_, job)| job).collect();
    let bounds = match simulation.json && simulation.pool.is_arena() {
        true => simulate_bounds::of(&jobs, simulation.jobs.threads())?,
        false => Vec::new(),
    };
    let bar = progress::runs(plain.len());
    let ended = sweep(&plain, simulation.jobs.threads(), |index, outcome| {
        let (log, job) = &jobs[index];
        let first = index == 0 || !std::ptr::eq(jobs[index - 1].0, *log);
        let shown = match outcome {
            Ok(outcome) => {
                let text = describe(
                    simulation,
                    log,
                    &job.setting,
                    &outcome,
                    bounds.get(index),
                    first,
                );
                // One write a run: whoever is cut off in the middle has whole lines.
                bar.suspend(|| io::stdout().write_all(text.as_bytes()))
                    .map_err(Failure::output)
            }
            Err(unsound) => Err(Failure::Input(format!("{}: {unsound}", log.name))),
        };
        bar.inc(1);
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

/// Reads traces and logs, and runs each without a limit.
pub(crate) fn read(paths: &[PathBuf]) -> Result<Vec<Log>, Failure> {
    paths.iter().map(|path| read_one(path)).collect()
}

/// Reads a trace or log, and runs it without a limit.
pub(crate) fn read_one(path: &Path) -> Result<Log, Failure> {
    let name = path.display().to_string();
    let reader = remat_trace::open(path)?.with_mutations_in_place();
    let program = Program::read_as(reader.format(), Shown::new(reader, path))?;
    match program.base() {
        Ok(base) => Ok(Log {
            name,
            program,
            base,
        }),
        Err(unsound) => Err(Failure::Input(format!("{name}: {unsound}"))),
    }
}

/// How exactly smallest and cutoff budgets are told: to a 4096th of the memory without a limit.
pub(crate) fn within(log: &Log) -> Bytes {
    Bytes((log.base.memory.0 / 4096).max(1))
}

/// Policies, and each one's budgets.
fn settings(simulation: &Simulate) -> impl Iterator<Item = Setting> + '_ {
    let ratios = simulation
        .ratios
        .ratios
        .iter()
        .map(|&ratio| Budget::Ratio(ratio));
    let budgets: Vec<Budget> = match simulation.budgets.is_empty() {
        true => ratios.collect(),
        false => simulation
            .budgets
            .iter()
            .map(|&bytes| Budget::Bytes(bytes))
            .collect(),
    };
    simulation.policies.iter().flat_map(move |&policy| {
        budgets.clone().into_iter().map(move |budget| Setting {
            dealloc: simulation.dealloc.into(),
            budget,
            thrash_limit: simulation.thrash_limit,
            seed: simulation.seed,
            ..pool::setting(&simulation.pool, policy)
        })
    })
}

fn job(log: &Log, setting: Setting) -> Job<'_> {
    Job {
        program: &log.program,
        base: &log.base,
        setting,
    }
}

fn describe(
    simulation: &Simulate,
    log: &Log,
    setting: &Setting,
    outcome: &Outcome,
    bounds: Option<&Bounds>,
    first: bool,
) -> String {
    if simulation.json {
        return simulate_json::line(log, simulation.dealloc.name(), setting, outcome, bounds);
    }
    let row = simulate_table::row(log, setting, outcome);
    if first {
        simulate_table::heading(log) + &row
    } else {
        row
    }
}
