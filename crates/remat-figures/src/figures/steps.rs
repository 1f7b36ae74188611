//! Overhead against memory ratio (DTR preprint, figure 2), and every figure that has the same axes: ablations (7 to 10 in
//! appendix D.1) and deallocation (11, appendix D.2).

use super::axis::{Axis, Scale};
use super::notes::Notes;
use super::plot::{self, Key, Panel, Plot, Series, Shade};
use super::runs::{Runs, Way};
use super::sheet::{Drawing, Sheet};
use super::style::{Dash, Look};
use crate::arguments::Deallocation;
use remat_sim::Outcome;

/// The policies that the paper compares, and Remat's own.
pub(super) const MAIN: [Way; 8] = [
    ("dtr", Deallocation::Eager),
    ("dtr-eq", Deallocation::Eager),
    ("dtr-anc", Deallocation::Eager),
    ("dtr-local", Deallocation::Eager),
    ("lru", Deallocation::Eager),
    ("size", Deallocation::Eager),
    ("msps", Deallocation::Eager),
    ("random", Deallocation::Eager),
];

/// For each cost term: the whole score, without size, without staleness, without both.
pub(super) const ABLATIONS: [[Way; 4]; 4] = [
    [
        ("dtr", Deallocation::Eager),
        ("dtr-nosize", Deallocation::Eager),
        ("dtr-nostale", Deallocation::Eager),
        ("dtr-nosize-nostale", Deallocation::Eager),
    ],
    [
        ("dtr-eq", Deallocation::Eager),
        ("dtr-eq-nosize", Deallocation::Eager),
        ("dtr-eq-nostale", Deallocation::Eager),
        ("dtr-eq-nosize-nostale", Deallocation::Eager),
    ],
    [
        ("dtr-local", Deallocation::Eager),
        ("dtr-local-nosize", Deallocation::Eager),
        ("dtr-local-nostale", Deallocation::Eager),
        ("dtr-local-nosize-nostale", Deallocation::Eager),
    ],
    [
        ("dtr-no", Deallocation::Eager),
        ("dtr-no-nosize", Deallocation::Eager),
        ("dtr-no-nostale", Deallocation::Eager),
        ("dtr-no-nosize-nostale", Deallocation::Eager),
    ],
];

/// What happens to what the program lets go of.
pub(super) const DEALLOCATION: [Way; 6] = [
    ("dtr", Deallocation::Eager),
    ("dtr", Deallocation::Banish),
    ("dtr", Deallocation::Ignore),
    ("dtr-eq", Deallocation::Eager),
    ("dtr-eq", Deallocation::Banish),
    ("dtr-eq", Deallocation::Ignore),
];

/// What all of these figures say of their axes.
pub(super) const READ: &str = "Overhead is the cost of all ops run over the cost of the step; 1 is no recomputation. The memory ratio is \
    the budget over the peak of the step without a limit. Darker shade: the constants alone; lighter shade: the most that a single op \
    reads, makes and works in; no budget inside either can be met. Above each plot, in a lane a series: ratios at which the \
    budget cannot be met, and ratios at which the run was given up because more than the cost of the step was recomputed.";

/// Figures 2 and 3: all main policies.
pub(super) fn policies(runs: &Runs<'_>) -> Sheet {
    Sheet {
        name: "overhead",
        title: "Overhead against memory, by policy",
        caption: format!(
            "Each log inside budgets, by eviction policy, eager eviction (DTR preprint, figures 2 and 3). {READ}"
        ),
        drawing: Drawing::Plot(panels(runs, &MAIN, |place| Look::of_policy(MAIN[place].0), |way| way.0.into())),
        numbers: runs.numbers(&MAIN),
    }
}

/// Figures 7 to 10: terms of the score left out.
pub(super) fn ablations(runs: &Runs<'_>) -> Vec<Sheet> {
    let sheets = [
        (
            "ablation-exact",
            "Score without terms, cost of the exact evicted neighbourhood",
            "7",
        ),
        (
            "ablation-eq",
            "Score without terms, cost of union-find components",
            "8",
        ),
        (
            "ablation-local",
            "Score without terms, cost of the op alone",
            "9",
        ),
        ("ablation-no", "Score without terms, no cost", "10"),
    ];
    let sheet = |((name, title, figure), ways): (_, &[Way; 4])| {
        Sheet {
        name,
        title,
        caption: format!(
            "cost / (size * staleness), and the same without size, without staleness and without both, for one kind of cost \
             (DTR appendix D.1, figure {figure}). {READ}"
        ),
        drawing: Drawing::Plot(panels(runs, ways, Look::of, |way| way.0.into())),
        numbers: runs.numbers(ways),
    }
    };
    sheets.into_iter().zip(&ABLATIONS).map(sheet).collect()
}

/// Figure 11: deallocation.
pub(super) fn deallocation(runs: &Runs<'_>) -> Sheet {
    let look = |place: usize| {
        let dash = [Dash::Solid, Dash::Dashed][place / 3 % 2];
        Look::of(place).dashed(dash)
    };
    let name = |way: Way| format!("{}, {}", way.0, describe(way.1));
    Sheet {
        name: "deallocation",
        title: "What happens to what the program lets go of",
        caption: format!(
            "Evicted at once (eager), freed for good as soon as nothing evicted was computed from it (banishing), or left alone \
             (ignoring), under two scores (DTR appendix D.2, figure 11). {READ}"
        ),
        drawing: Drawing::Plot(panels(runs, &DEALLOCATION, look, name)),
        numbers: runs.numbers(&DEALLOCATION),
    }
}

fn describe(dealloc: Deallocation) -> &'static str {
    match dealloc {
        Deallocation::Eager => "eager",
        Deallocation::Banish => "banishing",
        Deallocation::Ignore => "ignoring",
    }
}

pub(super) fn panels(
    runs: &Runs<'_>,
    ways: &[Way],
    look: impl Fn(usize) -> Look,
    name: impl Fn(Way) -> String,
) -> Plot {
    let panels: Vec<Panel> = (0..runs.logs.len())
        .map(|log| panel(runs, log, ways, &look))
        .collect();
    let mut legend: Vec<_> = ways
        .iter()
        .enumerate()
        .map(|(place, &way)| (Key::Series(look(place)), name(way)))
        .collect();
    legend.extend(plot::misses(&panels));
    legend.extend(shades());
    Plot {
        columns: 3,
        panels,
        legend,
    }
}

fn panel(runs: &Runs<'_>, log: usize, ways: &[Way], look: &impl Fn(usize) -> Look) -> Panel {
    let base = runs.logs[log].base;
    let overhead = |outcome: &Outcome| outcome.overhead(&base);
    let series: Vec<Series> = ways
        .iter()
        .enumerate()
        .map(|(place, &way)| Series::of(look(place), runs.points(log, way, overhead)))
        .collect();
    let highest = series.iter().flat_map(Series::values).fold(1.05, f64::max);
    Panel {
        title: runs.titles[log].clone(),
        x: ratios(runs),
        y: Axis::over("overhead (×)", 0.98, highest * 1.03, Scale::Linear),
        bands: bands(runs, log),
        series,
        notes: Notes::default(),
    }
}

/// The axis of the memory ratios.
pub(super) fn ratios(runs: &Runs<'_>) -> Axis {
    let highest = runs.ratios.iter().copied().fold(1.0, f64::max);
    let label = "memory ratio (budget / peak without a limit)";
    Axis::over(label, 0.0, highest * 1.02, Scale::Linear)
}

/// What no budget can do without.
pub(super) fn bands(runs: &Runs<'_>, log: usize) -> Vec<(f64, f64, Shade)> {
    let base = &runs.logs[log].base;
    let ratio = |bytes: u64| bytes as f64 / base.memory.0.max(1) as f64;
    vec![
        (0.0, ratio(base.bottleneck.0), Shade::Bottleneck),
        (0.0, ratio(base.constants.0), Shade::Constants),
    ]
}

/// Legend lines for the [`bands`].
pub(super) fn shades() -> [(Key, String); 2] {
    [
        (Key::Shade(Shade::Constants), "constants".into()),
        (Key::Shade(Shade::Bottleneck), "largest op".into()),
    ]
}
