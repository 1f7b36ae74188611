//! Ops against layers of the linear network (DTR theorem 3.1), beside static checkpointing, and what is in memory while it
//! runs (DTR figure 5; 4 of the preprint).

use crate::csv::Csv;
use crate::figure::Figure;
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
        let figure = |name, csv| Figure::new(name, csv).told("give_up", GIVE_UP);
        [
            figure(
                "linear-policies",
                self.table(&runs, |case| case.1 == THEOREM),
            ),
            figure(
                "linear-budgets",
                self.table(&runs, |case| case.0 == "e-star"),
            ),
        ]
    }

    fn table(&self, runs: &[(Case, &Outcome)], wanted: impl Fn(&Case) -> bool) -> Csv {
        let mut csv = Csv::new([
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
            csv.row([
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

/// Every op takes a nanosecond, and the clock starts at 1.
fn ops(outcome: &Outcome) -> u64 {
    outcome.clock - 1
}

/// Layers of the picture, as in the paper.
pub const PICTURED: u32 = 200;

/// Figure 5 of the paper, of a picture of [`PICTURED`] layers taken under `e-star` within the theorem's budget: one row an op
/// performed, one column a layer.
pub fn residency(picture: &Picture) -> Figure {
    let layers = (1..=picture.layers).map(|layer| format!("t{layer}"));
    let mut csv = Csv::new(["op".into(), "phase".into()].into_iter().chain(layers));
    for (op, column) in picture.columns.iter().enumerate() {
        let phase = if op < picture.backward {
            "forward"
        } else {
            "backward"
        };
        let cells = column.iter().map(|held| match held {
            Held::Nothing => "0".into(),
            Held::Result => "1".into(),
            Held::Gradient => "1.5".into(),
        });
        csv.row(
            [(op + 1).to_string(), phase.into()]
                .into_iter()
                .chain(cells),
        );
    }
    let budget = linear::root_budget(picture.layers).0;
    Figure::new("residency", csv).told("budget", budget as f64)
}
