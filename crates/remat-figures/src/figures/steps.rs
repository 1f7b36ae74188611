//! Figures of recorded steps: overhead against memory (DTR preprint, figures 2 and 3), ablations and deallocation (appendices
//! D.1 and D.2), the work of deciding (D.3), and memory with addresses (Coop, figures 4 to 6).

use crate::figure::{Axis, Entry, Figure, Key, Panel, Scale, Series, Shade};
use crate::look::{Dash, Look};
use crate::runs::{Memory, Runs, Step, Way};
use remat_core::Dealloc::{self, Banish, Eager, Ignore};
use remat_sim::{Base, Outcome};

/// The policies that the paper compares, and Remat's own.
pub(crate) const MAIN: [Way; 8] = eager([
    "dtr",
    "dtr-eq",
    "dtr-anc",
    "dtr-local",
    "lru",
    "size",
    "msps",
    "random",
]);

/// For each kind of cost: the whole score, without size, without staleness, without both. Figures 7 to 10 of the paper.
const ABLATIONS: [(&str, &str, [Way; 4]); 4] = [
    (
        "ablation-exact",
        "Score without terms, cost of the exact evicted neighbourhood",
        eager(["dtr", "dtr-nosize", "dtr-nostale", "dtr-nosize-nostale"]),
    ),
    (
        "ablation-eq",
        "Score without terms, cost of union-find components",
        eager([
            "dtr-eq",
            "dtr-eq-nosize",
            "dtr-eq-nostale",
            "dtr-eq-nosize-nostale",
        ]),
    ),
    (
        "ablation-local",
        "Score without terms, cost of the op alone",
        eager([
            "dtr-local",
            "dtr-local-nosize",
            "dtr-local-nostale",
            "dtr-local-nosize-nostale",
        ]),
    ),
    (
        "ablation-no",
        "Score without terms, no cost",
        eager([
            "dtr-no",
            "dtr-no-nosize",
            "dtr-no-nostale",
            "dtr-no-nosize-nostale",
        ]),
    ),
];

const DEALLOCATION: [Way; 6] = [
    ("dtr", Eager),
    ("dtr", Banish),
    ("dtr", Ignore),
    ("dtr-eq", Eager),
    ("dtr-eq", Banish),
    ("dtr-eq", Ignore),
];

/// Windows, and the baselines of Coop; `dtr-anc` has the cost that `coop` has, `sar` is for transformers only.
const ARENA: [Way; 6] = eager(["coop", "dte", "dtr", "dtr-eq", "dtr-anc", "sar"]);

/// The policies of [`ARENA`] that search.
const SEARCHING: [Way; 5] = eager(["coop", "dte", "dtr", "dtr-eq", "dtr-anc"]);

const READ: &str = "Overhead is the cost of all ops run over the cost of the step; 1 is no recomputation. The memory ratio is \
    the budget over the peak of the step without a limit. Darker shade: the constants alone; lighter shade: the most that a single op \
    reads, makes and works in; no budget inside either can be met. Above each plot, in a lane a series: ratios at which the \
    budget cannot be met, and ratios at which the run was given up because more than the cost of the step was recomputed.";

const fn eager<const N: usize>(names: [&'static str; N]) -> [Way; N] {
    let mut ways = [("", Eager); N];
    let mut at = 0;
    while at < N {
        ways[at].0 = names[at];
        at += 1;
    }
    ways
}

/// What the figures of memory that is counted need.
pub fn counted<'a>(steps: &[Step<'a>], ratios: &[f64]) -> Runs<'a> {
    let ablations = ABLATIONS.iter().flat_map(|(_, _, ways)| ways);
    let ways: Vec<Way> = MAIN
        .iter()
        .chain(ablations)
        .chain(&DEALLOCATION)
        .copied()
        .collect();
    Runs::wanted(steps, ratios, &ways, Memory::Counted)
}

/// What the figures of arenas need.
pub fn arena<'a>(steps: &[Step<'a>], ratios: &[f64]) -> Runs<'a> {
    Runs::wanted(steps, ratios, &ARENA, Memory::Arena)
}

/// What the panels of a figure show, a panel a step.
struct Shown<'a, V: Fn(&Outcome, &Base) -> f64> {
    runs: &'a Runs<'a>,
    ways: &'a [Way],
    label: &'static str,
    scale: Scale,
    value: V,
    look: fn(usize, Way) -> Look,
    name: fn(Way) -> String,
}

/// The figures of memory that is counted.
pub fn of_counted(runs: &Runs) -> Vec<Figure> {
    let mut figures = vec![overhead(runs)];
    figures.extend(
        ABLATIONS
            .iter()
            .zip(7..)
            .map(|(ablation, number)| ablated(runs, ablation, number)),
    );
    figures.push(deallocation(runs));
    figures.extend(deciding(runs));
    figures
}

fn overhead(runs: &Runs) -> Figure {
    Figure {
        name: "overhead",
        title: "Overhead against memory, by policy",
        caption: format!("Each log inside budgets, by eviction policy, eager eviction (DTR preprint, figures 2 and 3). {READ}"),
        ..overheads(runs, &MAIN).look(of_policy).figure()
    }
}

fn ablated(
    runs: &Runs,
    (name, title, ways): &(&'static str, &'static str, [Way; 4]),
    number: u32,
) -> Figure {
    Figure {
        name,
        title,
        caption: format!(
            "cost / (size * staleness), and the same without size, without staleness and without both, for one kind of cost \
             (DTR appendix D.1, figure {number}). {READ}"
        ),
        ..overheads(runs, ways).figure()
    }
}

fn deallocation(runs: &Runs) -> Figure {
    let mut shown = overheads(runs, &DEALLOCATION).look(|place, _| {
        let dash = if place < 3 { Dash::Solid } else { Dash::Dashed };
        Look::of(place).dashed(dash)
    });
    shown.name = |(policy, dealloc)| format!("{policy}, {}", describe(dealloc));
    Figure {
        name: "deallocation",
        title: "What happens to what the program lets go of",
        caption: format!(
            "Evicted at once (eager), freed for good as soon as nothing evicted was computed from it (banishing), or left alone \
             (ignoring), under two scores (DTR appendix D.2, figure 11). {READ}"
        ),
        ..shown.figure()
    }
}

fn describe(dealloc: Dealloc) -> &'static str {
    match dealloc {
        Eager => "eager",
        Banish => "banishing",
        Ignore => "ignoring",
    }
}

fn deciding(runs: &Runs) -> [Figure; 2] {
    let accesses = |outcome: &Outcome, _: &Base| outcome.counters.metadata_accesses as f64;
    let evaluations = |outcome: &Outcome, _: &Base| outcome.counters.score_evaluations as f64;
    [
        Figure {
            name: "accesses",
            title: "Metadata accesses while deciding",
            caption: "Storages looked at to score candidates and to keep neighbourhoods up to date, each score counted as one \
                (DTR appendix D.3, figure 12). Runs that evict nothing have no point on the logarithmic axis. Marks above the \
                plots and shades as in the figure of overheads."
                .into(),
            ..shown(runs, &MAIN, "metadata accesses", Scale::Log, accesses).look(of_policy).figure()
        },
        Figure {
            name: "evaluations",
            title: "Scores evaluated while deciding",
            caption: "Candidates scored in all searches together: the part of the metadata accesses that an index over the \
                candidates can save."
                .into(),
            ..shown(runs, &MAIN, "score evaluations", Scale::Log, evaluations).look(of_policy).figure()
        },
    ]
}

/// The figures of arenas.
pub fn of_arenas(runs: &Runs) -> [Figure; 3] {
    let selective = (0..runs.steps.len()).any(|step| runs.of(step, ARENA[5]).next().is_some());
    let ways: &[Way] = if selective { &ARENA } else { &SEARCHING };
    let latency = |outcome: &Outcome, _: &Base| outcome.search_latency();
    let fragmentation = |outcome: &Outcome, _: &Base| outcome.fragmentation().0 * 100.0;
    [
        Figure {
            name: "arena-overhead",
            title: "Overhead against memory in an arena",
            caption: format!(
                "Each log in one arena of exactly the budget, by eviction policy (Coop, figure 4): coop evicts neighbours, all others one \
                 storage after the other until a block is large enough; sar recomputes attention, whatever the budget, and stands only \
                 where a log has any. {READ}"
            ),
            ..overheads(runs, ways).figure()
        },
        Figure {
            name: "arena-latency",
            title: "Search latency in an arena",
            caption: "Wall time of the searches for what to evict, for each block that was not to be had without evicting, mean (Coop, \
                figure 5). It depends on the machine and on what else it does; all else in these figures does not. Runs that \
                evict nothing have no point."
                .into(),
            ..shown(runs, &SEARCHING, "search latency (ns)", Scale::Log, latency).figure()
        },
        Figure {
            name: "arena-fragmentation",
            title: "Fragmentation of an arena",
            caption: "Part of the arena that is free once a block was taken that was not to be had without evicting, mean over all such blocks \
                (Coop, figure 6)."
                .into(),
            ..shown(runs, &SEARCHING, "fragmentation (%)", Scale::Linear, fragmentation).figure()
        },
    ]
}

fn of_policy(_: usize, (policy, _): Way) -> Look {
    Look::of_policy(policy)
}

const OVERHEAD: &str = "overhead (×)";

fn overheads<'a>(
    runs: &'a Runs<'a>,
    ways: &'a [Way],
) -> Shown<'a, impl Fn(&Outcome, &Base) -> f64> {
    shown(runs, ways, OVERHEAD, Scale::Linear, Outcome::overhead)
}

fn shown<'a, V: Fn(&Outcome, &Base) -> f64>(
    runs: &'a Runs<'a>,
    ways: &'a [Way],
    label: &'static str,
    scale: Scale,
    value: V,
) -> Shown<'a, V> {
    let (look, name) = (|place, _| Look::of(place), |way: Way| way.0.to_owned());
    Shown {
        runs,
        ways,
        label,
        scale,
        value,
        look,
        name,
    }
}

impl<V: Fn(&Outcome, &Base) -> f64> Shown<'_, V> {
    fn look(self, look: fn(usize, Way) -> Look) -> Self {
        Shown { look, ..self }
    }

    /// The figure, its words to be given.
    fn figure(&self) -> Figure {
        let panels: Vec<Panel> = (0..self.runs.steps.len())
            .map(|step| self.panel(step))
            .collect();
        let key = |(place, &way)| Entry::series((self.name)(way), (self.look)(place, way));
        let mut legend: Vec<Entry> = self.ways.iter().enumerate().map(key).collect();
        legend.extend(Entry::misses(&panels));
        let shade = |(name, shade): (&str, Shade)| Entry {
            name: name.into(),
            key: Key::Shade(shade),
        };
        legend.extend(
            [
                ("constants", Shade::Constants),
                ("largest op", Shade::Bottleneck),
            ]
            .map(shade),
        );
        let (name, title, caption) = Default::default();
        Figure {
            name,
            title,
            caption,
            columns: 3,
            panels,
            legend,
            csv: self.runs.table(self.ways),
        }
    }

    fn panel(&self, step: usize) -> Panel {
        let base = self.runs.steps[step].base;
        let line = |(place, &way)| {
            let points = self
                .runs
                .points(step, way, |outcome| (self.value)(outcome, base));
            Series::of((self.name)(way), (self.look)(place, way), points)
        };
        let series: Vec<Series> = self.ways.iter().enumerate().map(line).collect();
        let values = series.iter().flat_map(Series::values);
        let y = if self.label == OVERHEAD {
            Axis::over(
                self.label,
                0.98,
                values.fold(1.05, f64::max) * 1.03,
                self.scale,
            )
        } else {
            Axis::around(self.label, values, self.scale)
        };
        let highest = self.runs.ratios.iter().copied().fold(1.0, f64::max);
        let x = Axis::over(
            "memory ratio (budget / peak without a limit)",
            0.0,
            highest * 1.02,
            Scale::Linear,
        );
        let part = |bytes: u64| bytes as f64 / base.memory.0.max(1) as f64;
        let mut panel = Panel::new(&self.runs.titles[step], x, y, series);
        panel.bands = vec![
            (part(base.bottleneck.0), Shade::Bottleneck),
            (part(base.constants.0), Shade::Constants),
        ];
        panel
    }
}
