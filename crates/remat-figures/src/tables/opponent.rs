//! Ops that an adversary forces policies to (DTR theorem 3.2, appendix B).

use crate::csv::Csv;
use crate::figure::Figure;
use remat_core::{Policy, UnknownPolicy};
use remat_sim::adversary::Forced;

/// Nodes at a fixed budget, and budgets for a fixed number of nodes.
const NODES: [u32; 6] = [32, 64, 128, 256, 512, 1024];
const BUDGET: u32 = 16;
const BUDGETS: [u32; 6] = [4, 8, 16, 32, 64, 128];
const MANY: u32 = 512;

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
    fn least(&self) -> f64 {
        f64::from(self.nodes).powi(2) / (2.0 * f64::from(self.budget))
    }
}

/// All graphs that the figure needs: against every policy that draws no lots and needs no addresses.
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

/// The figure of all duels and what came of them.
pub fn figure(fought: &[(Duel, Forced)]) -> Figure {
    let names = [
        "policy",
        "nodes",
        "budget_tensors",
        "ops",
        "bound_ops",
        "static_ops",
        "longest_path",
    ];
    let mut csv = Csv::new(names);
    for (duel, forced) in fought {
        csv.row([
            duel.name.into(),
            duel.nodes.to_string(),
            duel.budget.to_string(),
            forced.ops.to_string(),
            duel.least().to_string(),
            duel.nodes.to_string(),
            forced.paths.iter().max().unwrap_or(&0).to_string(),
        ]);
    }
    let figure = Figure::new("adversary", csv);
    figure
        .told("nodes", MANY.into())
        .told("budget", BUDGET.into())
}
