//! Ops against layers of the linear network (DTR theorem 3.1), beside static checkpointing.

use super::axis::{Axis, Scale};
use super::csv::Csv;
use super::notes::Notes;
use super::plot::{self, Key, Panel, Plot, Series};
use super::runs::{self, point};
use super::sheet::{Drawing, Sheet};
use super::style::{look, Dash, Look, Marker, BLACK, GREY};
use crate::failure::Failure;
use remat_core::{Bytes, Dealloc};
use remat_sim::{checkpointing, linear, Base, Budget, Job, Outcome, Program, Setting};

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
    Bound::Root(2),
    Bound::Root(4),
    Bound::Part(4),
];

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
        let n = u64::from(layers);
        match self {
            Bound::Log => Bytes(2 * u64::from(layers.max(2).next_power_of_two().ilog2()) + 2),
            Bound::Root(times) => Bytes(times * linear::root_budget(layers).0 / 2),
            Bound::Part(of) => Bytes(n.div_ceil(of).max(3)),
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
}

/// The networks, made once.
pub(super) struct Networks(Vec<(u32, Program, Base)>);

/// One run: policy, bound, and which network.
type Case = (&'static str, Bound, usize);

impl Networks {
    pub(super) fn new() -> Networks {
        let network = |layers| (layers, linear::program(layers), linear::base(layers));
        Networks(LAYERS.into_iter().map(network).collect())
    }

    fn cases(&self) -> impl Iterator<Item = Case> + '_ {
        let policies = POLICIES.into_iter().map(|policy| (policy, Bound::Root(2)));
        let others = BOUNDS.into_iter().filter(|&bound| bound != Bound::Root(2));
        policies
            .chain(others.map(|bound| ("e-star", bound)))
            .flat_map(|(policy, bound)| (0..self.0.len()).map(move |at| (policy, bound, at)))
    }

    /// The jobs, in the order in which [`sheets`](Self::sheets) wants their outcomes.
    pub(super) fn jobs(&self) -> Result<Vec<Job<'_>>, Failure> {
        let job = |(policy, bound, at): Case| {
            let (layers, program, base) = &self.0[at];
            Ok(Job {
                program,
                base,
                setting: Setting {
                    policy: runs::named(policy)?.into(),
                    dealloc: Dealloc::Banish,
                    budget: Budget::Bytes(bound.bytes(*layers)),
                    thrash_limit: GIVE_UP,
                    seed: 0,
                    ..Setting::default()
                },
            })
        };
        self.cases().map(job).collect()
    }

    /// Ops by policy at the theorem's budget, and by budget under the theorem's policy.
    pub(super) fn sheets(&self, outcomes: &[Outcome]) -> [Sheet; 2] {
        let runs: Vec<(Case, &Outcome)> = self.cases().zip(outcomes).collect();
        let root = |case: &Case| case.1 == Bound::Root(2);
        let e_star = |case: &Case| case.0 == "e-star";
        [
            Sheet {
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
                drawing: Drawing::Plot(self.by_policy(&runs)),
                numbers: self.numbers(&runs, root),
            },
            Sheet {
                name: "linear-budgets",
                title: "Theorem 3.1: ops of the linear network, by budget",
                caption: format!(
                    "Ops with e-star inside budgets that grow differently with N, and the fewest that Treeverse takes with B - 2 \
                     checkpoints (dotted, same colour). Chen, halving: memory log₂ N (Chen et al. 2016, section 4.3). \
                     A run is given up once it recomputed {GIVE_UP} times the step."
                ),
                drawing: Drawing::Plot(self.by_bound(&runs)),
                numbers: self.numbers(&runs, e_star),
            },
        ]
    }

    fn by_policy(&self, runs: &[(Case, &Outcome)]) -> Plot {
        let chen = look(BLACK, Marker::None, Dash::Solid);
        let tree = look(BLACK, Marker::None, Dash::Dotted);
        let panel = |title: &str, label: &str, per_layer: bool| {
            let by = |layers: u32| match per_layer {
                true => f64::from(layers),
                false => 1.0,
            };
            let mut series: Vec<Series> = POLICIES
                .iter()
                .map(|&policy| {
                    let look = Look::of_policy(policy);
                    self.series(runs, policy, Bound::Root(2), look, by)
                })
                .collect();
            series.push(self.closed(chen, by, |n| Some(checkpointing::chen_root(n))));
            series.push(self.closed(tree, by, |n| treeverse(Bound::Root(2), n)));
            self.panel(title, label, series)
        };
        let panels = vec![
            panel("all ops", "ops", false),
            panel("ops per layer", "ops / layer", true),
        ];
        let mut legend: Vec<_> = POLICIES
            .iter()
            .map(|name| (Key::Series(Look::of_policy(name)), (*name).to_owned()))
            .collect();
        legend.push((Key::Series(chen), "Chen, ⌈√N⌉ segments".into()));
        legend.push((Key::Series(tree), "Treeverse, B - 2 checkpoints".into()));
        legend.extend(plot::misses(&panels));
        Plot {
            columns: 2,
            panels,
            legend,
        }
    }

    fn by_bound(&self, runs: &[(Case, &Outcome)]) -> Plot {
        let halving = look(BLACK, Marker::None, Dash::Solid);
        let place = |place: usize| Look::of(place).dashed(Dash::Solid);
        let panel = |title: &str, label: &str, per_layer: bool| {
            let by = |layers: u32| match per_layer {
                true => f64::from(layers),
                false => 1.0,
            };
            let mut series = Vec::new();
            for (at, bound) in BOUNDS.into_iter().enumerate() {
                series.push(self.series(runs, "e-star", bound, place(at), by));
                let tree = look(place(at).colour, Marker::None, Dash::Dotted);
                series.push(self.closed(tree, by, |n| treeverse(bound, n)));
            }
            series.push(self.closed(halving, by, |n| Some(checkpointing::chen_halving(n))));
            self.panel(title, label, series)
        };
        let panels = vec![
            panel("all ops", "ops", false),
            panel("ops per layer", "ops / layer", true),
        ];
        let mut legend: Vec<_> = BOUNDS
            .iter()
            .enumerate()
            .map(|(at, bound)| (Key::Series(place(at)), format!("B = {}", bound.name())))
            .collect();
        let dotted = look(GREY, Marker::None, Dash::Dotted);
        legend.push((Key::Series(dotted), "Treeverse, B - 2 checkpoints".into()));
        legend.push((Key::Series(halving), "Chen, halving".into()));
        legend.extend(plot::misses(&panels));
        Plot {
            columns: 2,
            panels,
            legend,
        }
    }

    fn panel(&self, title: &str, label: &str, series: Vec<Series>) -> Panel {
        let values = series.iter().flat_map(Series::values);
        Panel {
            title: title.into(),
            x: Axis::around("layers N", LAYERS.map(f64::from), Scale::Log),
            y: Axis::around(label, values, Scale::Log),
            bands: Vec::new(),
            series,
            notes: Notes::default(),
        }
    }

    fn series(
        &self,
        runs: &[(Case, &Outcome)],
        policy: &str,
        bound: Bound,
        look: Look,
        by: impl Fn(u32) -> f64,
    ) -> Series {
        let mine = runs
            .iter()
            .filter(|((other, of, _), _)| *other == policy && *of == bound);
        let points = mine.map(|((_, _, at), outcome)| {
            let layers = self.0[*at].0;
            let ops = |outcome: &Outcome| ops(outcome) as f64 / by(layers);
            (f64::from(layers), point(outcome, ops))
        });
        Series::of(look, points.collect())
    }

    fn closed(
        &self,
        look: Look,
        by: impl Fn(u32) -> f64,
        ops: impl Fn(u32) -> Option<u64>,
    ) -> Series {
        let point = |layers: u32| Some((f64::from(layers), ops(layers)? as f64 / by(layers)));
        Series::through(look, LAYERS.into_iter().filter_map(point))
    }

    fn numbers(&self, runs: &[(Case, &Outcome)], wanted: impl Fn(&Case) -> bool) -> Csv {
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
                treeverse(*bound, layers).map_or_else(String::new, |ops| ops.to_string()),
            ]);
        }
        csv
    }
}

/// Every op takes a nanosecond, and the clock starts at 1.
fn ops(outcome: &Outcome) -> u64 {
    outcome.clock - 1
}

fn treeverse(bound: Bound, layers: u32) -> Option<u64> {
    let checkpoints = checkpointing::checkpoints_within(bound.bytes(layers).0);
    checkpointing::treeverse(layers, checkpoints)
}
