//! The smallest budget and the cutoff budget of each log and policy, of runs in an arena.

use crate::failure::Failure;
use crate::progress;
use crate::simulate::{within, Log};
use remat_core::Bytes;
use remat_sim::{in_order, Job, Setting, Unsound};
use std::ops::ControlFlow;

/// The two budgets; `None` where none was found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) smallest: Option<Bytes>,
    pub(crate) cutoff: Option<Bytes>,
}

/// The bounds of each job, those that differ in their budgets alone looked for once.
pub(crate) fn of(jobs: &[(&Log, Job)], threads: usize) -> Result<Vec<Bounds>, Failure> {
    let mut cases: Vec<usize> = (0..jobs.len()).collect();
    cases.dedup_by(|later, earlier| same(&jobs[*later], &jobs[*earlier]));
    let bar = progress::runs(cases.len());
    let mut found = Vec::new();
    let ended = in_order(
        cases.len(),
        threads,
        |case| find(jobs[cases[case]].0, &jobs[cases[case]].1.setting),
        |case, bounds| {
            bar.inc(1);
            match bounds {
                Ok(bounds) => {
                    let end = cases.get(case + 1).copied().unwrap_or(jobs.len());
                    found.resize(end, bounds);
                    ControlFlow::Continue(())
                }
                Err(unsound) => ControlFlow::Break(Failure::Input(format!(
                    "{}: {unsound}",
                    jobs[cases[case]].0.name
                ))),
            }
        },
    );
    bar.finish_and_clear();
    match ended {
        ControlFlow::Continue(()) => Ok(found),
        ControlFlow::Break(failure) => Err(failure),
    }
}

fn same(a: &(&Log, Job), b: &(&Log, Job)) -> bool {
    let budget = a.1.setting.budget;
    std::ptr::eq(a.0, b.0)
        && a.1.setting
            == Setting {
                budget,
                ..b.1.setting
            }
}

fn find(log: &Log, setting: &Setting) -> Result<Bounds, Unsound> {
    let (program, base, within) = (&log.program, &log.base, within(log));
    Ok(Bounds {
        smallest: program
            .smallest_budget(base, setting, within, |_| {})?
            .works,
        cutoff: program.cutoff_budget(base, setting, within)?,
    })
}
