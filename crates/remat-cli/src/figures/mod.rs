//! `remat figures`: the figures of the DTR paper, of any logs.
//!
//! | file | concept |
//! | --- | --- |
//! | `runs.rs` | the runs of logs that figures are made of |
//! | `overhead.rs`, `accesses.rs` | figures of logs |
//! | `layers.rs`, `residency.rs`, `opponent.rs` | figures of the theorems |
//! | `sheet.rs`, `csv.rs`, `page.rs`, `folder.rs` | a figure's files, its numbers, the page, where they go |
//! | `plot.rs`, `axis.rs`, `style.rs` | what a plot says |
//! | `draw.rs`, `pen.rs`, `strip.rs` | how it is drawn |

mod accesses;
mod axis;
mod csv;
mod draw;
mod folder;
mod layers;
mod opponent;
mod overhead;
mod page;
mod pen;
mod plot;
mod residency;
mod runs;
mod sheet;
mod strip;
mod style;

use crate::arguments::Figures;
use crate::failure::Failure;
use crate::{progress, simulate};
use folder::Folder;
use layers::Networks;
use runs::{Plan, Way};
use std::io::{self, Write};

pub(crate) fn run(arguments: &Figures) -> Result<(), Failure> {
    let folder = Folder::open(&arguments.out)?;
    pen::prepare().map_err(Failure::Input)?;
    let logs = simulate::read(&arguments.logs)?;
    let mut ratios = arguments.ratios.ratios.clone();
    ratios.sort_by(f64::total_cmp);
    ratios.dedup();

    let plan = Plan::new(&logs, &ratios, &wanted());
    let networks = Networks::new();
    let mut jobs = plan.jobs()?;
    let of_logs = jobs.len();
    jobs.extend(networks.jobs()?);
    let bar = progress::runs(jobs.len() + opponent::count());
    let mut outcomes = runs::perform(&jobs, arguments.jobs.threads(), &bar)?;
    let of_networks = outcomes.split_off(of_logs);
    let adversary = opponent::sheet(&bar)?;
    bar.finish_and_clear();

    let runs = plan.done(outcomes);
    let mut sheets = vec![overhead::policies(&runs)];
    sheets.extend(overhead::ablations(&runs));
    sheets.push(overhead::deallocation(&runs));
    sheets.extend(accesses::sheets(&runs));
    sheets.extend(networks.sheets(&of_networks));
    sheets.push(residency::sheet()?);
    sheets.push(adversary);
    for sheet in &sheets {
        for (name, bytes) in sheet.files()? {
            folder.write(&name, &bytes)?;
        }
    }
    let page = page::html(&runs, &sheets);
    folder.write("index.html", page.as_bytes())?;
    let index = arguments.out.join("index.html");
    writeln!(io::stdout(), "{}", index.display()).map_err(Failure::output)
}

/// What the figures of logs need.
fn wanted() -> Vec<Way> {
    let ablations = overhead::ABLATIONS.iter().flatten();
    let all = overhead::MAIN.iter().chain(ablations);
    all.chain(&overhead::DEALLOCATION).copied().collect()
}
