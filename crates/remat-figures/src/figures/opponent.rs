//! Ops that an adversary forces policies to (DTR theorem 3.2, appendix B).

use super::steps::MAIN;
use crate::csv::Csv;
use crate::figure::{Axis, Entry, Figure, Panel, Point, Scale, Series, Value};
use crate::look::{look, Colour, Dash, Look, Marker};
use remat_core::{Policy, UnknownPolicy};
use remat_sim::adversary::Forced;

/// Nodes at a fixed budget, and budgets for a fixed number of nodes.
const NODES: [u32; 6] = [32, 64, 128, 256, 512, 1024];
const BUDGET: u32 = 16;
const BUDGETS: [u32; 6] = [4, 8, 16, 32, 64, 128];
const MANY: u32 = 512;

const BOUND: Look = look(Colour::Black, Marker::None, Dash::Dashed);
const STATIC: Look = look(Colour::Black, Marker::None, Dash::Dotted);
const ABLATION: Look = look(Colour::Pale, Marker::None, Dash::Solid);

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
    Figure {
        name: "adversary",
        title: "Theorem 3.2: what an adversary forces any policy to",
        caption: format!(
            "A graph of N nodes on B paths from one root, drawn while the policy decides: the next node goes to the end of a path of \
             which nothing is resident, so that the whole path is recomputed (DTR theorem 3.2, appendix B). Every deterministic \
             policy takes at least N²/(2B) ops; an order known beforehand takes N. Left: B = {BUDGET}. Middle: N = {MANY}. \
             Right: ops over N²/(2B), B = {BUDGET}; equally long paths come to 1 + B/N, what is above is the policy's own \
             doing. Policies forced to the same lie on one another. The ablations of the score are drawn grey; all are named in \
             the CSV."
        ),
        columns: 3,
        panels: panels(fought),
        legend: legend(),
        csv: table(fought),
    }
}

/// The main policies and `e-star`.
fn main() -> impl Iterator<Item = &'static str> {
    let named = MAIN
        .iter()
        .map(|way| way.0)
        .filter(|name| *name != "random");
    named.chain(["e-star"])
}

fn legend() -> Vec<Entry> {
    let policies = main().map(|name| Entry::series(name, Look::of_policy(name)));
    let others = [
        ("ablations", ABLATION),
        ("N²/(2B)", BOUND),
        ("order known beforehand", STATIC),
    ];
    policies
        .chain(others.map(|(name, look)| Entry::series(name, look)))
        .collect()
}

fn panels(fought: &[(Duel, Forced)]) -> Vec<Panel> {
    let by_nodes = |duel: &Duel| (duel.budget == BUDGET).then(|| f64::from(duel.nodes));
    let by_budget = |duel: &Duel| (duel.nodes == MANY).then(|| f64::from(duel.budget));
    let ops = |_: &Duel, ops: f64| ops;
    let excess = |duel: &Duel, ops: f64| ops / duel.least();
    vec![
        panel(fought, ("ops by nodes", "nodes N", "ops"), by_nodes, ops),
        panel(
            fought,
            ("ops by budget", "budget B (tensors)", "ops"),
            by_budget,
            ops,
        ),
        panel(
            fought,
            ("ops over the bound", "nodes N", "ops / (N²/(2B))"),
            by_nodes,
            excess,
        ),
    ]
}

/// A line a policy, the main ones last, so that they lie on top; then the bound and the static order.
fn panel(
    fought: &[(Duel, Forced)],
    (title, x_label, y_label): (&str, &str, &str),
    x: impl Fn(&Duel) -> Option<f64>,
    y: impl Fn(&Duel, f64) -> f64,
) -> Panel {
    let line = |name: &str| {
        let mine = fought.iter().filter(|(duel, _)| duel.name == name);
        let mut points: Vec<Point> = mine
            .filter_map(|(duel, forced)| {
                let told = format!(
                    "{name}: N = {}, B = {}, {} ops",
                    duel.nodes, duel.budget, forced.ops
                );
                Some(Point {
                    x: x(duel)?,
                    y: Value::At(y(duel, forced.ops as f64)),
                    told,
                })
            })
            .collect();
        points.sort_by(|one, other| one.x.total_cmp(&other.x));
        points
    };
    let is_main = |name: &str| main().any(|other| other == name);
    let mut others: Vec<&str> = fought
        .iter()
        .map(|(duel, _)| duel.name)
        .filter(|name| !is_main(name))
        .collect();
    others.dedup();
    let mut series: Vec<Series> = others
        .iter()
        .map(|name| Series::of("ablations", ABLATION, line(name)))
        .collect();
    series.extend(main().map(|name| Series::of(name, Look::of_policy(name), line(name))));
    let any = fought.iter().filter(|(duel, _)| {
        fought
            .first()
            .is_some_and(|(first, _)| first.name == duel.name)
    });
    let formula = |ops: &dyn Fn(&Duel) -> f64| {
        let mut places: Vec<(f64, f64)> = any
            .clone()
            .filter_map(|(duel, _)| Some((x(duel)?, y(duel, ops(duel)))))
            .collect();
        places.sort_by(|one, other| one.0.total_cmp(&other.0));
        places
    };
    series.push(Series::through("N²/(2B)", BOUND, formula(&Duel::least)));
    if y_label == "ops" {
        series.push(Series::through(
            "order known beforehand",
            STATIC,
            formula(&|duel| f64::from(duel.nodes)),
        ));
    }
    let places = series
        .iter()
        .flat_map(|series| &series.points)
        .map(|point| point.x);
    let x = Axis::around(x_label, places, Scale::Log);
    let y = Axis::around(y_label, series.iter().flat_map(Series::values), Scale::Log);
    Panel::new(title, x, y, series)
}

fn table(fought: &[(Duel, Forced)]) -> Csv {
    let names = [
        "policy",
        "nodes",
        "budget_tensors",
        "ops",
        "bound_ops",
        "static_ops",
        "longest_path",
    ];
    let mut csv = Csv::new(&names);
    for (duel, forced) in fought {
        csv.row(&[
            duel.name.into(),
            duel.nodes.to_string(),
            duel.budget.to_string(),
            forced.ops.to_string(),
            duel.least().to_string(),
            duel.nodes.to_string(),
            forced.paths.iter().max().unwrap_or(&0).to_string(),
        ]);
    }
    csv
}
