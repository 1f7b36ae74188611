//! Memory with addresses (Coop, figures 4 to 6): overhead, search latency and fragmentation against memory ratio.

use super::axis::{Axis, Scale};
use super::notes::Notes;
use super::overhead::{self, READ};
use super::plot::{self, Key, Panel, Plot, Series};
use super::runs::{Runs, Way};
use super::sheet::{Drawing, Sheet};
use super::style::Look;
use crate::arguments::Deallocation;
use remat_sim::Outcome;

/// Windows, and the baselines of the paper; `dtr-anc` has the cost that `coop` has, `sar` has no search and is for transformers only.
pub(super) const POLICIES: [Way; 6] = [
    ("coop", Deallocation::Eager),
    ("dte", Deallocation::Eager),
    ("dtr", Deallocation::Eager),
    ("dtr-eq", Deallocation::Eager),
    ("dtr-anc", Deallocation::Eager),
    ("sar", Deallocation::Eager),
];

/// Those that search.
fn online() -> &'static [Way] {
    &POLICIES[..5]
}

/// All, if any log has attention.
fn shown(runs: &Runs<'_>) -> &'static [Way] {
    let mut logs = 0..runs.logs.len();
    match logs.any(|log| runs.of(log, POLICIES[5]).next().is_some()) {
        true => &POLICIES,
        false => online(),
    }
}

/// The three figures.
pub(super) fn sheets(runs: &Runs<'_>) -> [Sheet; 3] {
    [
        Sheet {
            name: "arena-overhead",
            title: "Overhead against memory in an arena",
            caption: format!(
                "Each log in one arena of exactly the budget, by eviction policy (Coop, figure 4): coop evicts neighbours, all others one \
                 storage after the other until a block is large enough; sar recomputes attention, whatever the budget, and stands only \
                 where a log has any. {READ}"
            ),
            drawing: Drawing::Plot(overhead::panels(runs, shown(runs), Look::of, |way| way.0.into())),
            numbers: runs.numbers(&POLICIES),
        },
        Sheet {
            name: "arena-latency",
            title: "Search latency in an arena",
            caption: "Wall time of the searches for what to evict, for each block that was not to be had without evicting, mean (Coop, \
                figure 5). It depends on the machine and on what else it does; all else in these figures does not. Runs that \
                evict nothing have no point."
                .into(),
            drawing: Drawing::Plot(plot(runs, "search latency (ns)", Scale::Log, Outcome::search_latency)),
            numbers: runs.numbers(online()),
        },
        Sheet {
            name: "arena-fragmentation",
            title: "Fragmentation of an arena",
            caption: "Part of the arena that is free once a block was taken that was not to be had without evicting, mean over all such blocks \
                (Coop, figure 6)."
                .into(),
            drawing: Drawing::Plot(plot(runs, "fragmentation (%)", Scale::Linear, |outcome| {
                outcome.fragmentation().0 * 100.0
            })),
            numbers: runs.numbers(online()),
        },
    ]
}

fn plot(runs: &Runs<'_>, label: &str, scale: Scale, value: impl Fn(&Outcome) -> f64) -> Plot {
    let panels: Vec<Panel> = (0..runs.logs.len())
        .map(|log| {
            let series: Vec<Series> = online()
                .iter()
                .enumerate()
                .map(|(place, &way)| Series::of(Look::of(place), runs.points(log, way, &value)))
                .collect();
            Panel {
                title: runs.titles[log].clone(),
                x: overhead::ratios(runs),
                y: Axis::around(label, series.iter().flat_map(Series::values), scale),
                bands: overhead::bands(runs, log),
                series,
                notes: Notes::default(),
            }
        })
        .collect();
    let mut legend: Vec<_> = online()
        .iter()
        .enumerate()
        .map(|(place, way)| (Key::Series(Look::of(place)), way.0.to_owned()))
        .collect();
    legend.extend(plot::misses(&panels));
    legend.extend(overhead::shades());
    Plot {
        columns: 3,
        panels,
        legend,
    }
}
