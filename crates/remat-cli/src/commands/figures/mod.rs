//! `remat figures`: runs steps and plans chains for the figures of the DTR, Coop and Rotor papers, and writes them.

mod curves;
mod folder;
mod sources;
mod synthetic;
mod timing;

use crate::arguments::{Figures, PoolOptions};
use crate::failure::Failure;
use crate::log::Log;
use crate::{memory, progress, table};
use folder::Folder;
use indicatif::ProgressBar;
use remat_core::{Bytes, Policy};
use remat_figures::figures::linear::{self, Networks};
use remat_figures::figures::{chains, growth, opponent, steps};
use remat_figures::page::{Page, Table};
use remat_figures::runs::Step;
use remat_figures::svg::Painter;
use remat_sim::linear::{root_budget, Picture};
use remat_sim::{adversary, sweep, Job, Outcome, Setting};
use std::fmt::Display;
use std::io::{self, Write};
use std::ops::ControlFlow;

pub(crate) fn run(arguments: &Figures) -> Result<(), Failure> {
    let folder = Folder::open(&arguments.out)?;
    let sources = sources::read(&arguments.files)?;
    let mut page = Page::default();
    if !sources.logs.is_empty() {
        of_steps(&sources.logs, arguments, &mut page)?;
    }
    if !sources.chains.is_empty() {
        let planned = curves::of(&sources.chains, &arguments.strategies)?;
        page.tables.extend(planned.iter().map(smallest_budgets));
        page.figures.push(chains::figure(&planned));
    }
    if let Some(limit) = arguments.growth {
        page.figures
            .push(growth::figure(&timing::measure(limit)?, limit));
    }
    write(&page, &folder)?;
    let index = arguments.out.join("index.html");
    writeln!(io::stdout(), "{}", index.display()).map_err(Failure::output)
}

/// The figures of recorded steps, and of the theorems.
fn of_steps(logs: &[Log], arguments: &Figures, page: &mut Page) -> Result<(), Failure> {
    let steps: Vec<Step> = logs.iter().map(Log::step).collect();
    let ratios = &arguments.ratios.ratios;
    let mut counted = steps::counted(&steps, ratios);
    let mut arena = steps::arena(&steps, ratios);
    let networks = Networks::new();
    let duels = opponent::duels().map_err(fault)?;
    let mut jobs = counted
        .jobs(|policy| Setting {
            policy,
            ..Setting::default()
        })
        .map_err(fault)?;
    let of_counted = jobs.len();
    let in_arena = PoolOptions::arena();
    jobs.extend(
        arena
            .jobs(|policy| memory::setting(&in_arena, policy))
            .map_err(fault)?,
    );
    let of_steps = jobs.len();
    jobs.extend(networks.jobs().map_err(fault)?);

    let bar = progress::runs(jobs.len() + duels.len());
    let mut outcomes = perform(&jobs, arguments.jobs.threads(), &bar)?;
    let of_networks = outcomes.split_off(of_steps);
    arena.fill(outcomes.split_off(of_counted));
    counted.fill(outcomes);
    let fight = |duel: opponent::Duel| {
        bar.inc(1);
        let forced = adversary::run(duel.policy, duel.nodes, duel.budget);
        let named = |error| Failure::Input(format!("{} against the adversary: {error}", duel.name));
        Ok((duel, forced.map_err(named)?))
    };
    let fought = duels
        .into_iter()
        .map(fight)
        .collect::<Result<Vec<_>, Failure>>()?;
    bar.finish_and_clear();

    page.tables.push(known(logs));
    page.figures.extend(steps::of_counted(&counted));
    page.figures.extend(steps::of_arenas(&arena));
    page.figures.extend(networks.figures(&of_networks));
    page.figures.push(linear::residency(&picture()?));
    page.figures.push(opponent::figure(&fought));
    Ok(())
}

fn fault(error: impl Display) -> Failure {
    Failure::Input(error.to_string())
}

/// Runs jobs and counts them on the bar; outcomes come in the order of the jobs.
fn perform(jobs: &[Job<'_>], threads: usize, bar: &ProgressBar) -> Result<Vec<Outcome>, Failure> {
    let mut outcomes = Vec::with_capacity(jobs.len());
    let ended = sweep(jobs, threads, |_, outcome| {
        bar.inc(1);
        match outcome {
            Ok(outcome) => {
                outcomes.push(outcome);
                ControlFlow::Continue(())
            }
            Err(unsound) => ControlFlow::Break(fault(unsound)),
        }
    });
    match ended {
        ControlFlow::Continue(()) => Ok(outcomes),
        ControlFlow::Break(failure) => Err(failure),
    }
}

/// The linear network within the theorem's budget.
fn picture() -> Result<Picture, Failure> {
    let budget = root_budget(linear::PICTURED);
    let picture = Picture::take(linear::PICTURED, budget, Policy::EStar).map_err(fault)?;
    picture.ok_or_else(|| {
        fault(format_args!(
            "{} layers do not fit into {budget}",
            linear::PICTURED
        ))
    })
}

/// A table of the logs.
fn known(logs: &[Log]) -> Table {
    let names = [
        "log",
        "events",
        "peak without a limit",
        "cost",
        "constants",
        "largest op",
    ];
    let row = |log: &Log| {
        let base = &log.base;
        vec![
            log.name.clone(),
            log.program.len().to_string(),
            base.memory.to_string(),
            table::duration(base.cost.0),
            base.constants.to_string(),
            base.bottleneck.to_string(),
        ]
    };
    Table {
        heading: "Recorded steps".into(),
        rows: [names.map(Into::into).to_vec()]
            .into_iter()
            .chain(logs.iter().map(row))
            .collect(),
    }
}

/// A table of the smallest budget of each strategy for a chain.
fn smallest_budgets(planned: &chains::Planned) -> Table {
    let row = |curve: &chains::Curve| {
        let (bytes, words) = match (curve.smallest(), &curve.points) {
            (Some(bytes), _) => (bytes.to_string(), Bytes(bytes).to_string()),
            (None, Err(reason)) => (String::new(), format!("left out: {reason}")),
            (None, Ok(_)) => Default::default(),
        };
        vec![curve.strategy.to_string(), bytes, words]
    };
    let names = ["smallest feasible budgets", "bytes", ""]
        .map(Into::into)
        .to_vec();
    Table {
        heading: format!("Chain {}", planned.name),
        rows: [names]
            .into_iter()
            .chain(planned.curves.iter().map(row))
            .collect(),
    }
}

/// Writes each figure as SVG and its numbers as CSV, and the page last.
fn write(page: &Page, folder: &Folder) -> Result<(), Failure> {
    let painter = Painter::new().map_err(fault)?;
    for figure in &page.figures {
        let name = figure.name;
        let svg = painter.svg(figure).map_err(|error| {
            Failure::Input(format!(
                "the figure {name} cannot be drawn: {error}; its numbers can be had with `remat simulate --json` \
                 or `remat plan chain --curve --json`"
            ))
        })?;
        folder.write(&format!("{name}.svg"), svg.as_bytes())?;
        folder.write(&format!("{name}.csv"), figure.csv.text().as_bytes())?;
    }
    folder.write("index.html", page.html().map_err(fault)?.as_bytes())
}
