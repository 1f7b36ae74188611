//! `remat simulate`.

mod bounds;
mod json;
mod table;

use crate::arguments::Simulate;
use crate::failure::Failure;
use crate::log::{self, Log, Place};
use crate::progress;
use remat_sim::{Budget, Outcome, Setting};

pub(crate) fn run(simulation: &Simulate) -> Result<(), Failure> {
    let replays = &simulation.replays;
    let logs = replays.read_logs(&simulation.policies)?;
    let settings: Vec<Setting> = settings(simulation);
    let cases: Vec<(&Log, Setting)> = logs
        .iter()
        .flat_map(|log| settings.iter().map(move |&setting| (log, setting)))
        .collect();
    let threads = replays.jobs.threads();
    let bounds = if simulation.json && replays.pool.is_arena() {
        bounds::of(&cases, threads)?
    } else {
        Vec::new()
    };
    let bar = progress::runs(cases.len());
    let run = |log: &Log, setting: &Setting| {
        let outcome = log.program.run(&log.base, setting);
        bar.inc(1);
        outcome
    };
    log::print(
        &cases,
        threads,
        &bar,
        run,
        |index, outcome: &Outcome, place| {
            let (log, setting) = &cases[index];
            if simulation.json {
                return json::line(
                    log,
                    replays.dealloc.name(),
                    setting,
                    outcome,
                    bounds.get(index),
                );
            }
            let row = table::row(log, setting, outcome);
            match place {
                Place::First => table::heading(log) + &row,
                Place::Later => row,
            }
        },
    )
}

/// Policies, and each one's budgets.
fn settings(simulation: &Simulate) -> Vec<Setting> {
    let budgets: Vec<Budget> = if simulation.budgets.is_empty() {
        simulation
            .ratios
            .ratios
            .iter()
            .copied()
            .map(Budget::Ratio)
            .collect()
    } else {
        simulation
            .budgets
            .iter()
            .copied()
            .map(Budget::Bytes)
            .collect()
    };
    let of = |&policy| {
        let setting = simulation.replays.setting(policy);
        budgets
            .iter()
            .map(move |&budget| Setting { budget, ..setting })
            .collect::<Vec<_>>()
    };
    simulation.policies.iter().flat_map(of).collect()
}
