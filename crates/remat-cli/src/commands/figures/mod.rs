//! `remat figures`: the figures of the DTR and Coop papers, of any logs, and of the Rotor paper, of any chains.
//!
//! | file | concept |
//! | --- | --- |
//! | `sources.rs`, `titles.rs` | logs and chains, told apart, and what they are called |
//! | `runs.rs` | the runs of logs that figures are made of |
//! | `overhead.rs`, `accesses.rs`, `arena.rs` | figures of logs |
//! | `layers.rs`, `residency.rs`, `opponent.rs` | figures of the theorems |
//! | `curves.rs`, `chains.rs` | chains planned for all budgets, and their figure |
//! | `timing.rs`, `synthetic.rs`, `growth.rs` | planning timed, on what chains, and its figure |
//! | `sheet.rs`, `csv.rs`, `page.rs`, `folder.rs` | a figure's files, its numbers, the page, where they go |
//! | `plot.rs`, `axis.rs`, `memory.rs`, `join.rs`, `notes.rs`, `style.rs` | what a plot says |
//! | `draw.rs`, `pen.rs`, `strip.rs` | how it is drawn |

mod accesses;
mod arena;
mod axis;
mod chains;
mod csv;
mod curves;
mod draw;
mod folder;
mod growth;
mod join;
mod layers;
mod memory;
mod notes;
mod opponent;
mod overhead;
mod page;
mod pen;
mod plot;
mod residency;
mod runs;
mod sheet;
mod sources;
mod strip;
mod style;
mod synthetic;
mod timing;
mod titles;

use crate::arguments::Figures;
use crate::failure::Failure;
use crate::progress;
use crate::simulate::Log;
use folder::Folder;
use layers::Networks;
use page::Page;
use runs::{Plan, Way};
use std::io::{self, Write};

pub(crate) fn run(arguments: &Figures) -> Result<(), Failure> {
    let folder = Folder::open(&arguments.out)?;
    pen::prepare().map_err(Failure::Input)?;
    let sources = sources::read(&arguments.files)?;
    let mut page = Page::default();
    if !sources.logs.is_empty() {
        of_steps(&sources.logs, arguments, &mut page)?;
    }
    if !sources.chains.is_empty() {
        let planned = curves::of(&sources.chains, &arguments.strategies)?;
        page.tables.push(page::chains(&planned));
        page.sheets.push(chains::sheet(&planned));
    }
    if let Some(seconds) = arguments.growth {
        page.sheets.push(growth::sheet(seconds)?);
    }
    for sheet in &page.sheets {
        for (name, bytes) in sheet.files()? {
            folder.write(&name, &bytes)?;
        }
    }
    folder.write("index.html", page.html().as_bytes())?;
    let index = arguments.out.join("index.html");
    writeln!(io::stdout(), "{}", index.display()).map_err(Failure::output)
}

/// The figures of recorded steps, and of the theorems.
fn of_steps(logs: &[Log], arguments: &Figures, page: &mut Page) -> Result<(), Failure> {
    let mut ratios = arguments.ratios.ratios.clone();
    ratios.sort_by(f64::total_cmp);
    ratios.dedup();

    let plan = Plan::new(logs, &ratios, &wanted());
    let in_arena = Plan::new(logs, &ratios, &arena::POLICIES).in_arena();
    let networks = Networks::new();
    let mut jobs = plan.jobs()?;
    let of_logs = jobs.len();
    jobs.extend(in_arena.jobs()?);
    let of_both = jobs.len();
    jobs.extend(networks.jobs()?);
    let bar = progress::runs(jobs.len() + opponent::count());
    let mut outcomes = runs::perform(&jobs, arguments.jobs.threads(), &bar)?;
    let of_networks = outcomes.split_off(of_both);
    let of_arenas = outcomes.split_off(of_logs);
    let adversary = opponent::sheet(&bar)?;
    bar.finish_and_clear();

    let runs = plan.done(outcomes);
    page.tables.push(page::logs(&runs));
    let sheets = &mut page.sheets;
    sheets.push(overhead::policies(&runs));
    sheets.extend(overhead::ablations(&runs));
    sheets.push(overhead::deallocation(&runs));
    sheets.extend(accesses::sheets(&runs));
    sheets.extend(arena::sheets(&in_arena.done(of_arenas)));
    sheets.extend(networks.sheets(&of_networks));
    sheets.push(residency::sheet()?);
    sheets.push(adversary);
    Ok(())
}

/// What the figures of logs need.
fn wanted() -> Vec<Way> {
    let ablations = overhead::ABLATIONS.iter().flatten();
    let all = overhead::MAIN.iter().chain(ablations);
    all.chain(&overhead::DEALLOCATION).copied().collect()
}
