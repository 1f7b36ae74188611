//! The runs that show the DTR paper's two theorems: the linear network within budgets that grow with its layers (3.1),
//! and graphs that an adversary draws (3.2).

use crate::{Base, Budget, Job, Program, Setting, UnknownEviction, checkpointing, linear};
use remat_core::{Bytes, Dealloc, Policy, UnknownPolicy};

const LAYERS: [u32; 9] = [16, 32, 64, 128, 256, 512, 1024, 2048, 4096];

/// A run is given up once it recomputed this many times the ops of the step.
pub const GIVE_UP: f64 = 20.0;

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
pub const THEOREM: Bound = Bound::Root(2);

/// How a budget grows with the layers.
#[derive(Clone, Copy, PartialEq)]
pub enum Bound {
    /// 2 ceil(log2 N) + 2.
    Log,
    /// So many times ceil(sqrt N).
    Root(u64),
    /// N over so much.
    Part(u64),
}

impl Bound {
    /// The budget in bytes, of which each tensor takes one.
    pub fn bytes(self, layers: u32) -> Bytes {
        match self {
            Bound::Log => Bytes(2 * u64::from(layers.max(2).next_power_of_two().ilog2()) + 2),
            Bound::Root(times) => Bytes(times * linear::root_budget(layers).0 / 2),
            Bound::Part(of) => Bytes(u64::from(layers).div_ceil(of).max(3)),
        }
    }

    /// The formula.
    pub fn name(self) -> String {
        match self {
            Bound::Log => "2⌈log₂ N⌉ + 2".into(),
            Bound::Root(1) => "⌈√N⌉".into(),
            Bound::Root(times) => format!("{times}⌈√N⌉"),
            Bound::Part(of) => format!("N/{of}"),
        }
    }

    /// The fewest ops with so many checkpoints as fit, if any do.
    pub fn treeverse(self, layers: u32) -> Option<u64> {
        checkpointing::treeverse(
            layers,
            checkpointing::checkpoints_within(self.bytes(layers).0),
        )
    }
}

/// The networks, made once.
pub struct Networks(Vec<(Program, Base)>);

/// One run: policy, bound, and layers.
pub type Case = (&'static str, Bound, u32);

impl Networks {
    /// Networks of 16 to 4096 layers.
    pub fn make() -> Networks {
        let network = |layers| (linear::program(layers), linear::base(layers));
        Networks(LAYERS.into_iter().map(network).collect())
    }

    /// The runs: all policies within the theorem's budget, and `e-star` within the others.
    pub fn cases() -> impl Iterator<Item = Case> {
        let policies = POLICIES.into_iter().map(|policy| (policy, THEOREM));
        let others = BOUNDS.into_iter().filter(|&bound| bound != THEOREM);
        let all = policies.chain(others.map(|bound| ("e-star", bound)));
        all.flat_map(|(policy, bound)| LAYERS.map(|layers| (policy, bound, layers)))
    }

    /// The jobs of the [`cases`](Self::cases), in their order.
    ///
    /// # Errors
    /// None: the policies are known.
    pub fn jobs(&self) -> Result<Vec<Job<'_>>, UnknownEviction> {
        let mut jobs = Vec::new();
        for ((policy, bound, layers), (program, base)) in
            Networks::cases().zip(self.0.iter().cycle())
        {
            let setting = Setting {
                policy: policy.parse()?,
                dealloc: Dealloc::Banish,
                budget: Budget::Bytes(bound.bytes(layers)),
                thrash_limit: GIVE_UP,
                seed: 0,
                ..Setting::default()
            };
            jobs.push(Job {
                program,
                base,
                setting,
            });
        }
        Ok(jobs)
    }
}

/// Nodes at a fixed budget, and budgets for a fixed number of nodes.
const NODES: [u32; 6] = [32, 64, 128, 256, 512, 1024];
/// The fixed budget.
pub const BUDGET: u32 = 16;
const BUDGETS: [u32; 6] = [4, 8, 16, 32, 64, 128];
/// The fixed number of nodes.
pub const MANY: u32 = 512;

/// A graph that is drawn against a policy.
#[derive(Clone, Copy, Debug)]
pub struct Duel {
    /// The policy's name.
    pub name: &'static str,
    /// The policy.
    pub policy: Policy,
    /// Nodes of the graph.
    pub nodes: u32,
    /// Bytes, of which each node takes one.
    pub budget: u32,
}

impl Duel {
    /// The fewest ops that any policy can be forced to.
    pub fn least(&self) -> f64 {
        f64::from(self.nodes).powi(2) / (2.0 * f64::from(self.budget))
    }
}

/// All graphs: against every policy that draws no lots and needs no addresses.
///
/// # Errors
/// None: the policies are known.
pub fn duels() -> Result<Vec<Duel>, UnknownPolicy> {
    let by_nodes = NODES.into_iter().map(|nodes| (nodes, BUDGET));
    let by_budget = BUDGETS.into_iter().map(|budget| (MANY, budget));
    let cases: Vec<(u32, u32)> = by_nodes
        .chain(by_budget.filter(|&case| case != (MANY, BUDGET)))
        .collect();
    let mut duels = Vec::new();
    for name in remat_core::names().filter(|name| *name != "random") {
        let policy: Policy = name.parse()?;
        if !policy.needs_arena() {
            duels.extend(cases.iter().map(|&(nodes, budget)| Duel {
                name,
                policy,
                nodes,
                budget,
            }));
        }
    }
    Ok(duels)
}
