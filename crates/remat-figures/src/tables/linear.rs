//! Ops against layers of the linear network (DTR theorem 3.1), beside static checkpointing, and what is in memory
//! while it runs (DTR figure 5; 4 of the preprint).

use crate::csv::Csv;
use crate::figure::Figure;
use remat_sim::linear::{self, Held, Picture};
use remat_sim::theorems::{Case, GIVE_UP, Networks, THEOREM};
use remat_sim::{Outcome, checkpointing};

/// Ops by policy at the theorem's budget, and by budget under the theorem's policy: of the outcomes of all
/// [cases](Networks::cases).
pub fn figures(outcomes: &[Outcome]) -> [Figure; 2] {
    let runs: Vec<(Case, &Outcome)> = Networks::cases().zip(outcomes).collect();
    let figure = |name, csv| Figure::new(name, csv).told("give_up", GIVE_UP);
    [
        figure("linear-policies", table(&runs, |case| case.1 == THEOREM)),
        figure("linear-budgets", table(&runs, |case| case.0 == "e-star")),
    ]
}

fn table(runs: &[(Case, &Outcome)], wanted: impl Fn(&Case) -> bool) -> Csv {
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
    for ((policy, bound, layers), outcome) in runs.iter().filter(|(case, _)| wanted(case)) {
        csv.row([
            layers.to_string(),
            (*policy).into(),
            bound.name(),
            outcome.budget.0.to_string(),
            outcome.status.to_string(),
            ops(outcome).to_string(),
            outcome.counters.evictions.to_string(),
            outcome.counters.replays.to_string(),
            checkpointing::chen_root(*layers).to_string(),
            checkpointing::chen_halving(*layers).to_string(),
            bound
                .treeverse(*layers)
                .map_or_else(String::new, |ops| ops.to_string()),
        ]);
    }
    csv
}

/// Every op takes a nanosecond, and the clock starts at 1.
fn ops(outcome: &Outcome) -> u64 {
    outcome.clock - 1
}

/// Layers of the picture, as in the paper.
pub const PICTURED: u32 = 200;

/// Figure 5 of the paper, of a picture of [`PICTURED`] layers taken under `e-star` within the theorem's budget: one
/// row an op performed, one column a layer.
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
