//! The smallest budget and the cutoff budget of each log and policy, of runs in an arena.

use crate::failure::Failure;
use crate::log::{self, Log};
use crate::progress;
use remat_core::Bytes;
use remat_sim::{Setting, Unsound};

/// The two budgets; `None` where none was found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) smallest: Option<Bytes>,
    pub(super) cutoff: Option<Bytes>,
}

/// The bounds of each run. Runs that differ in their budgets alone share one search.
pub(super) fn of(runs: &[(&Log, Setting)], threads: usize) -> Result<Vec<Bounds>, Failure> {
    let mut places: Vec<usize> = (0..runs.len()).collect();
    places.dedup_by(|later, earlier| same(&runs[*later], &runs[*earlier]));
    let cases: Vec<(&Log, Setting)> = places.iter().map(|&place| runs[place]).collect();
    let bar = progress::runs(cases.len());
    let mut found = Vec::new();
    let ended = log::work(&cases, threads, find, |case, bounds| {
        bar.inc(1);
        let end = places.get(case + 1).copied().unwrap_or(runs.len());
        found.resize(end, bounds);
        Ok(())
    });
    bar.finish_and_clear();
    ended.map(|()| found)
}

fn same(a: &(&Log, Setting), b: &(&Log, Setting)) -> bool {
    let budget = a.1.budget;
    std::ptr::eq(a.0, b.0) && a.1 == Setting { budget, ..b.1 }
}

fn find(log: &Log, setting: &Setting) -> Result<Bounds, Unsound> {
    let (program, base, within) = (&log.program, &log.base, log.within());
    Ok(Bounds {
        smallest: program
            .smallest_budget(base, setting, within, |_| {})?
            .works,
        cutoff: program.cutoff_budget(base, setting, within)?,
    })
}
