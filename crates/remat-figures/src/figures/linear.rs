//! Ops against layers of the linear network (DTR theorem 3.1), beside static checkpointing, and what is in memory while it
//! runs (DTR figure 5; 4 of the preprint).

use crate::csv::Csv;
use crate::figure::{Axis, Entry, Figure, Panel, Point, Scale, Series, Span};
use crate::look::{look, Colour, Dash, Look, Marker};
use crate::runs;
use remat_core::{Bytes, Dealloc};
use remat_sim::linear::{self, Held, Picture};
use remat_sim::{checkpointing, Base, Budget, Job, Outcome, Program, Setting, UnknownEviction};

const LAYERS: [u32; 9] = [16, 32, 64, 128, 256, 512, 1024, 2048, 4096];

/// A run is given up once it recomputed this many times the ops of the step.
const GIVE_UP: f64 = 20.0;

/// Compared at the theorem's budget.
const POLICIES: [&str; 8] = [
    "e-star",
    "dtr",
    "dtr-eq",
    "dtr-anc",
    "dtr-local",
    "lru",
    "size",
    "msps",
];

/// Budgets compared for `e-star`.
const BOUNDS: [Bound; 5] = [
    Bound::Log,
    Bound::Root(1),
    THEOREM,
    Bound::Root(4),
    Bound::Part(4),
];

/// The theorem's budget.
const THEOREM: Bound = Bound::Root(2);

/// How a budget grows with the layers.
#[derive(Clone, Copy, PartialEq)]
enum Bound {
    /// 2 ceil(log2 N) + 2.
    Log,
    /// So many times ceil(sqrt N).
    Root(u64),
    /// N over so much.
    Part(u64),
}

impl Bound {
    fn bytes(self, layers: u32) -> Bytes {
        match self {
            Bound::Log => Bytes(2 * u64::from(layers.max(2).next_power_of_two().ilog2()) + 2),
            Bound::Root(times) => Bytes(times * linear::root_budget(layers).0 / 2),
            Bound::Part(of) => Bytes(u64::from(layers).div_ceil(of).max(3)),
        }
    }

    fn name(self) -> String {
        match self {
            Bound::Log => "2⌈log₂ N⌉ + 2".into(),
            Bound::Root(1) => "⌈√N⌉".into(),
            Bound::Root(times) => format!("{times}⌈√N⌉"),
            Bound::Part(of) => format!("N/{of}"),
        }
    }

    fn treeverse(self, layers: u32) -> Option<u64> {
        checkpointing::treeverse(
            layers,
            checkpointing::checkpoints_within(self.bytes(layers).0),
        )
    }
}

/// The networks, made once.
pub struct Networks(Vec<(u32, Program, Base)>);

/// One run: policy, bound, and which network.
type Case = (&'static str, Bound, usize);

impl Networks {
    /// Networks of 16 to 4096 layers.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Networks {
        let network = |layers| (layers, linear::program(layers), linear::base(layers));
        Networks(LAYERS.into_iter().map(network).collect())
    }

    fn cases(&self) -> impl Iterator<Item = Case> + '_ {
        let policies = POLICIES.into_iter().map(|policy| (policy, THEOREM));
        let others = BOUNDS.into_iter().filter(|&bound| bound != THEOREM);
        let all = policies.chain(others.map(|bound| ("e-star", bound)));
        all.flat_map(|(policy, bound)| (0..self.0.len()).map(move |at| (policy, bound, at)))
    }

    /// The runs' jobs, in the order in which [`figures`](Self::figures) wants their outcomes.
    pub fn jobs(&self) -> Result<Vec<Job<'_>>, UnknownEviction> {
        let job = |(policy, bound, at): Case| {
            let (layers, program, base) = &self.0[at];
            let setting = Setting {
                policy: policy.parse()?,
                dealloc: Dealloc::Banish,
                budget: Budget::Bytes(bound.bytes(*layers)),
                thrash_limit: GIVE_UP,
                seed: 0,
                ..Setting::default()
            };
            Ok(Job {
                program,
                base,
                setting,
            })
        };
        self.cases().map(job).collect()
    }

    /// Ops by policy at the theorem's budget, and by budget under the theorem's policy.
    pub fn figures(&self, outcomes: &[Outcome]) -> [Figure; 2] {
        let runs: Vec<(Case, &Outcome)> = self.cases().zip(outcomes).collect();
        let (by_policy, by_bound) = (
            self.panels(|by| self.by_policy(&runs, by)),
            self.panels(|by| self.by_bound(&runs, by)),
        );
        [
            Figure {
                name: "linear-policies",
                title: "Theorem 3.1: ops of the linear network, by policy",
                caption: format!(
                    "One step of N layers within B = 2⌈√N⌉ tensors, banishing (DTR theorem 3.1 and appendix A): all ops run, \
                     forward, backward and recomputed, and the same per layer; without a limit 2. With e-star the ops per layer \
                     stay below a constant. Chen, ⌈√N⌉ segments, fits the same memory (Chen et al. 2016, section 4.1). \
                     Treeverse is the fewest ops with B - 2 checkpoints, the input included (Griewank and Walther 2000), which \
                     knows N beforehand. Policies that take equally many ops lie on one another. A run is given up \
                     once it recomputed {GIVE_UP} times the step."
                ),
                columns: 2,
                legend: legend(&by_policy),
                panels: by_policy,
                csv: self.table(&runs, |case| case.1 == THEOREM),
            },
            Figure {
                name: "linear-budgets",
                title: "Theorem 3.1: ops of the linear network, by budget",
                caption: format!(
                    "Ops with e-star inside budgets that grow differently with N, and the fewest that Treeverse takes with B - 2 \
                     checkpoints (dotted, same colour). Chen, halving: memory log₂ N (Chen et al. 2016, section 4.3). \
                     A run is given up once it recomputed {GIVE_UP} times the step."
                ),
                columns: 2,
                legend: legend(&by_bound),
                panels: by_bound,
                csv: self.table(&runs, |case| case.0 == "e-star"),
            },
        ]
    }

    /// All ops, and ops per layer: `lines` gives the series, divided by a number of the layers.
    fn panels(&self, lines: impl Fn(fn(u32) -> f64) -> Vec<Series>) -> Vec<Panel> {
        let panel = |title: &str, label: &str, by: fn(u32) -> f64| {
            let series = lines(by);
            let y = Axis::around(label, series.iter().flat_map(Series::values), Scale::Log);
            Panel::new(
                title,
                Axis::around("layers N", LAYERS.map(f64::from), Scale::Log),
                y,
                series,
            )
        };
        vec![
            panel("all ops", "ops", |_| 1.0),
            panel("ops per layer", "ops / layer", f64::from),
        ]
    }

    fn by_policy(&self, runs: &[(Case, &Outcome)], by: fn(u32) -> f64) -> Vec<Series> {
        let line = |policy: &str| {
            self.measured(
                runs,
                policy.into(),
                (policy, THEOREM),
                Look::of_policy(policy),
                by,
            )
        };
        let mut series: Vec<Series> = POLICIES.iter().map(|policy| line(policy)).collect();
        series.push(closed("Chen, ⌈√N⌉ segments", BLACK, by, |n| {
            Some(checkpointing::chen_root(n))
        }));
        series.push(closed(TREEVERSE, BLACK.dashed(Dash::Dotted), by, |n| {
            THEOREM.treeverse(n)
        }));
        series
    }

    fn by_bound(&self, runs: &[(Case, &Outcome)], by: fn(u32) -> f64) -> Vec<Series> {
        let mut series = Vec::new();
        for (at, bound) in BOUNDS.into_iter().enumerate() {
            let look = Look::of(at).dashed(Dash::Solid);
            series.push(self.measured(
                runs,
                format!("B = {}", bound.name()),
                ("e-star", bound),
                look,
                by,
            ));
            series.push(closed(
                TREEVERSE,
                look.unmarked().dashed(Dash::Dotted),
                by,
                |n| bound.treeverse(n),
            ));
        }
        series.push(closed("Chen, halving", BLACK, by, |n| {
            Some(checkpointing::chen_halving(n))
        }));
        series
    }

    fn measured(
        &self,
        runs: &[(Case, &Outcome)],
        name: String,
        case: (&str, Bound),
        look: Look,
        by: fn(u32) -> f64,
    ) -> Series {
        let mine = runs
            .iter()
            .filter(|((policy, bound, _), _)| (*policy, *bound) == case);
        let point = |&((policy, bound, at), outcome): &(Case, &Outcome)| {
            let (layers, Bytes(budget)) = (self.0[at].0, outcome.budget);
            Point {
                x: f64::from(layers),
                y: runs::value(outcome, |outcome| ops(outcome) as f64 / by(layers)),
                told: format!(
                    "{policy}, B = {} = {budget} tensors, {} ops",
                    bound.name(),
                    ops(outcome)
                ),
            }
        };
        Series::of(name, look, mine.map(point).collect())
    }

    fn table(&self, runs: &[(Case, &Outcome)], wanted: impl Fn(&Case) -> bool) -> Csv {
        let mut csv = Csv::new(&[
            "layers",
            "policy",
            "bound",
            "budget_tensors",
            "status",
            "ops",
            "evictions",
            "rematerializations",
            "chen_root_ops",
            "chen_halving_ops",
            "treeverse_ops",
        ]);
        for ((policy, bound, at), outcome) in runs.iter().filter(|(case, _)| wanted(case)) {
            let layers = self.0[*at].0;
            csv.row(&[
                layers.to_string(),
                (*policy).into(),
                bound.name(),
                outcome.budget.0.to_string(),
                outcome.status.to_string(),
                ops(outcome).to_string(),
                outcome.counters.evictions.to_string(),
                outcome.counters.replays.to_string(),
                checkpointing::chen_root(layers).to_string(),
                checkpointing::chen_halving(layers).to_string(),
                bound
                    .treeverse(layers)
                    .map_or_else(String::new, |ops| ops.to_string()),
            ]);
        }
        csv
    }
}

const TREEVERSE: &str = "Treeverse, B - 2 checkpoints";
const BLACK: Look = look(Colour::Black, Marker::None, Dash::Solid);

/// Each series once; a dotted line that comes in several colours is grey.
fn legend(panels: &[Panel]) -> Vec<Entry> {
    let mut legend: Vec<Entry> = Vec::new();
    let series = &panels[0].series;
    for line in series
        .iter()
        .filter(|line| line.look.marker != Marker::None)
    {
        legend.push(Entry::series(&line.name, line.look));
    }
    for line in series
        .iter()
        .rev()
        .filter(|line| line.look.marker == Marker::None)
    {
        if legend.iter().all(|entry| entry.name != line.name) {
            let alone = series
                .iter()
                .filter(|other| other.name == line.name)
                .count()
                == 1;
            let grey = look(Colour::Grey, Marker::None, Dash::Dotted);
            legend.push(Entry::series(
                &line.name,
                if alone { line.look } else { grey },
            ));
        }
    }
    legend.extend(Entry::misses(panels));
    legend
}

/// Every op takes a nanosecond, and the clock starts at 1.
fn ops(outcome: &Outcome) -> u64 {
    outcome.clock - 1
}

/// Ops that a formula gives.
fn closed(name: &str, look: Look, by: fn(u32) -> f64, ops: impl Fn(u32) -> Option<u64>) -> Series {
    let place = |layers: u32| Some((f64::from(layers), ops(layers)? as f64 / by(layers)));
    Series::through(name, look, LAYERS.into_iter().filter_map(place))
}

/// Layers of the picture, as in the paper.
pub const PICTURED: u32 = 200;

const RESULT: &str = "result of the layer in memory";
const GRADIENT: &str = "gradient of the layer in memory";

/// Figure 5 of the paper, of a picture of [`PICTURED`] layers taken under `e-star` within the theorem's budget.
pub fn residency(picture: &Picture) -> Figure {
    let columns = picture.columns.len();
    let layers = f64::from(picture.layers);
    let key = |name, colour| Entry::series(name, look(colour, Marker::Square, Dash::Solid));
    let x = Axis::over("ops performed", 0.0, columns as f64, Scale::Linear);
    let panel = Panel {
        spans: (0..picture.layers as usize)
            .flat_map(|layer| spans(picture, layer))
            .collect(),
        rule: Some((picture.backward as f64, "forward   backward".into())),
        ..Panel::new(
            "",
            x,
            Axis::over("layer", 0.0, layers, Scale::Linear),
            Vec::new(),
        )
    };
    Figure {
        name: "residency",
        title: "What is in memory while the linear network runs",
        caption: format!(
            "N = {layers} layers, B = 2⌈√N⌉ = {} tensors, policy e-star, banishing (DTR figure 5; 4 of the preprint): a row a \
             layer, a column an op performed, {columns} in all. The rule marks the first gradient. Rows that stay filled are checkpoints, \
             evenly spaced; in the gaps between them the same happens again, smaller. White: not yet computed, evicted, or freed \
             for good.",
            linear::root_budget(picture.layers).0,
        ),
        columns: 1,
        panels: vec![panel],
        legend: vec![key(RESULT, Colour::Blue), key(GRADIENT, Colour::Orange)],
        csv: held(picture),
    }
}

/// Columns from and to which a layer is held without a break.
fn spans(picture: &Picture, row: usize) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    for (at, column) in picture.columns.iter().enumerate() {
        let name = match column[row] {
            Held::Nothing => continue,
            Held::Result => RESULT,
            Held::Gradient => GRADIENT,
        };
        match spans.last_mut() {
            Some(span) if span.to == at && span.name == name => span.to += 1,
            _ => spans.push(Span {
                name,
                row,
                from: at,
                to: at + 1,
            }),
        }
    }
    spans
}

/// One row an op performed, one column a layer.
fn held(picture: &Picture) -> Csv {
    let layers = (1..=picture.layers).map(|layer| format!("t{layer}"));
    let names: Vec<String> = ["op".into(), "phase".into()]
        .into_iter()
        .chain(layers)
        .collect();
    let mut csv = Csv::new(&names.iter().map(String::as_str).collect::<Vec<_>>());
    for (op, column) in picture.columns.iter().enumerate() {
        let phase = if op < picture.backward {
            "forward"
        } else {
            "backward"
        };
        let cells = column.iter().map(|held| match held {
            Held::Nothing => "0",
            Held::Result => "1",
            Held::Gradient => "1.5",
        });
        let mut row = vec![(op + 1).to_string(), phase.to_owned()];
        row.extend(cells.map(String::from));
        csv.row(&row);
    }
    csv
}
