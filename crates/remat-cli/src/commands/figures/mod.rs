//! `remat figures`: runs steps and plans chains for the figures of the DTR, Coop and Rotor papers, and writes them.

mod curves;
mod folder;
mod plans;
mod sources;

use crate::arguments::{Figures, PoolOptions};
use crate::failure::Failure;
use crate::log::Log;
use crate::{memory, progress};
use folder::Folder;
use indicatif::ProgressBar;
use remat_core::Policy;
use remat_figures::figure::Figure;
use remat_figures::page;
use remat_figures::runs::Step;
use remat_figures::svg::Painter;
use remat_figures::tables::linear;
use remat_figures::tables::{chains, opponent, planned, steps};
use remat_sim::adversary::{self, Forced};
use remat_sim::linear::{Picture, root_budget};
use remat_sim::theorems::{self, Duel, Networks};
use remat_sim::{Job, Outcome, Setting, in_order, sweep};
use std::fmt::Display;
use std::io::{self, Write};
use std::ops::ControlFlow;

pub(crate) fn run(arguments: &Figures) -> Result<(), Failure> {
    // The folder last: where a source is at fault, none is made.
    let sources = sources::read(&arguments.files)?;
    let folder = Folder::open(&arguments.out)?;
    let mut figures = Vec::new();
    if !sources.logs.is_empty() {
        figures.extend(of_steps(&sources.logs, arguments)?);
    }
    if !sources.chains.is_empty() {
        let planned = curves::of(&sources.chains, &arguments.strategies)?;
        figures.push(chains::figure(&planned));
    }
    if let Some(limit) = arguments.growth {
        figures.push(chains::growth(&curves::growths(limit)?, limit));
    }
    write(&figures, &folder)?;
    let index = arguments.out.join("index.html");
    writeln!(io::stdout(), "{}", index.display()).map_err(Failure::output)
}

/// The figures of recorded steps, and of the theorems.
fn of_steps(logs: &[Log], arguments: &Figures) -> Result<Vec<Figure>, Failure> {
    let steps: Vec<Step> = logs.iter().map(Log::step).collect();
    let ratios = &arguments.ratios.ratios;
    let mut counted = steps::counted(&steps, ratios).map_err(fault)?;
    let mut arena = steps::arena(&steps, ratios).map_err(fault)?;
    let networks = Networks::make();
    let duels = theorems::duels().map_err(fault)?;
    let mut jobs = counted.jobs(|policy| Setting {
        policy,
        ..Setting::default()
    });
    let of_counted = jobs.len();
    let in_arena = PoolOptions::arena();
    jobs.extend(arena.jobs(|policy| memory::setting(&in_arena, policy)));
    let of_steps = jobs.len();
    jobs.extend(networks.jobs().map_err(fault)?);

    let of_plans = logs.len() * ratios.len();
    let bar = progress::runs(jobs.len() + duels.len() + of_plans);
    let mut outcomes = perform(&jobs, arguments.jobs.threads(), &bar)?;
    let of_networks = outcomes.split_off(of_steps);
    arena.fill(outcomes.split_off(of_counted));
    counted.fill(outcomes);
    let fought = fight(&duels, arguments.jobs.threads(), &bar)?;
    let drawn = plans::of(logs, ratios, arguments.plan_rounds, &bar)?;
    bar.finish_and_clear();

    let mut figures = steps::figures(&counted, &arena).map_err(fault)?;
    figures.insert(1, planned::figure(&counted, &drawn).map_err(fault)?);
    figures.extend(linear::figures(&of_networks));
    figures.push(linear::residency(&picture()?));
    figures.push(opponent::figure(&fought));
    Ok(figures)
}

/// Draws the adversary's graphs and counts them on the bar; what came of them is in the order of the duels.
fn fight(
    duels: &[Duel],
    threads: usize,
    bar: &ProgressBar,
) -> Result<Vec<(Duel, Forced)>, Failure> {
    let mut fought = Vec::with_capacity(duels.len());
    let draw = |index: usize| {
        let duel = duels[index];
        adversary::run(duel.policy, duel.nodes, duel.budget)
    };
    let ended = in_order(duels.len(), threads, draw, |index, forced| {
        bar.inc(1);
        let duel = duels[index];
        match forced {
            Ok(forced) => {
                fought.push((duel, forced));
                ControlFlow::Continue(())
            }
            Err(error) => ControlFlow::Break(fault(format_args!(
                "{} against the adversary: {error}",
                duel.name
            ))),
        }
    });
    match ended {
        ControlFlow::Continue(()) => Ok(fought),
        ControlFlow::Break(failure) => Err(failure),
    }
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
    let picture = Picture::take(linear::PICTURED, budget, Policy::E_STAR).map_err(fault)?;
    picture.ok_or_else(|| {
        fault(format_args!(
            "{} layers do not fit into {budget}",
            linear::PICTURED
        ))
    })
}

/// Writes each figure as SVG and its numbers as CSV, and the page last.
fn write(figures: &[Figure], folder: &Folder) -> Result<(), Failure> {
    let painter = Painter::new().map_err(fault)?;
    for figure in figures {
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
    folder.write("index.html", page::html(figures).map_err(fault)?.as_bytes())
}
