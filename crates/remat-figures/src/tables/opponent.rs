//! Ops that an adversary forces policies to (DTR theorem 3.2, appendix B).

use crate::csv::Csv;
use crate::figure::Figure;
use remat_sim::adversary::Forced;
use remat_sim::theorems::{BUDGET, Duel, MANY};

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
