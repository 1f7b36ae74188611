//! Ops that an adversary forces policies to (DTR theorem 3.2, appendix B).

use super::axis::{Axis, Scale};
use super::csv::Csv;
use super::notes::Notes;
use super::overhead::MAIN;
use super::plot::{Key, Panel, Plot, Series};
use super::runs;
use super::sheet::{Drawing, Sheet};
use super::style::{look, Dash, Look, Marker, BLACK, PALE};
use crate::failure::Failure;
use indicatif::ProgressBar;
use remat_core::Policy;
use remat_sim::adversary::{self, Forced};

/// Nodes at a fixed budget, and budgets for a fixed number of nodes.
const NODES: [u32; 6] = [32, 64, 128, 256, 512, 1024];
const BUDGET: u32 = 16;
const BUDGETS: [u32; 6] = [4, 8, 16, 32, 64, 128];
const MANY: u32 = 512;

/// A graph drawn against a policy.
struct Duel {
    policy: &'static str,
    nodes: u32,
    budget: u32,
    forced: Forced,
}

/// Cases for each policy: nodes and budget.
fn cases() -> impl Iterator<Item = (u32, u32)> {
    let by_nodes = NODES.into_iter().map(|nodes| (nodes, BUDGET));
    let by_budget = BUDGETS.into_iter().map(|budget| (MANY, budget));
    by_nodes.chain(by_budget.filter(|&case| case != (MANY, BUDGET)))
}

/// All policies that do not draw lots.
fn deterministic() -> impl Iterator<Item = &'static str> {
    let counts = |name: &&str| {
        let policy: Result<Policy, _> = name.parse();
        policy.is_ok_and(|policy| !policy.needs_arena())
    };
    remat_core::names()
        .filter(counts)
        .filter(|name| *name != "random")
}

/// How many graphs are drawn.
pub(super) fn count() -> usize {
    cases().count() * deterministic().count()
}

/// Draws all graphs.
pub(super) fn sheet(bar: &ProgressBar) -> Result<Sheet, Failure> {
    let mut duels = Vec::with_capacity(count());
    for name in deterministic() {
        let policy = runs::named(name)?;
        for (nodes, budget) in cases() {
            let forced = adversary::run(policy, nodes, budget).map_err(|error| {
                Failure::Input(format!("{name} against the adversary: {error}"))
            })?;
            duels.push(Duel {
                policy: name,
                nodes,
                budget,
                forced,
            });
            bar.inc(1);
        }
    }
    Ok(Sheet {
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
        drawing: Drawing::Plot(plot(&duels)),
        numbers: numbers(&duels),
    })
}

fn least(nodes: u32, budget: u32) -> f64 {
    f64::from(nodes).powi(2) / (2.0 * f64::from(budget))
}

const BOUND: Look = look(BLACK, Marker::None, Dash::Dashed);
const STATIC: Look = look(BLACK, Marker::None, Dash::Dotted);
const OTHER: Look = look(PALE, Marker::None, Dash::Solid);

/// The main policies and `e-star`, with their looks.
fn main() -> Vec<(&'static str, Look)> {
    let named = MAIN
        .iter()
        .map(|way| way.0)
        .filter(|name| *name != "random");
    let all = named.chain(["e-star"]);
    all.map(|name| (name, Look::of_policy(name))).collect()
}

fn plot(duels: &[Duel]) -> Plot {
    let ops = |duel: &Duel| duel.forced.ops as f64;
    let by_nodes = |duel: &Duel| (duel.budget == BUDGET).then(|| f64::from(duel.nodes));
    let by_budget = |duel: &Duel| (duel.nodes == MANY).then(|| f64::from(duel.budget));
    let mut first = policies(duels, by_nodes, ops);
    first.push(Series::through(
        BOUND,
        NODES.map(|nodes| (f64::from(nodes), least(nodes, BUDGET))),
    ));
    first.push(Series::through(
        STATIC,
        NODES.map(|nodes| (f64::from(nodes), f64::from(nodes))),
    ));
    let mut second = policies(duels, by_budget, ops);
    second.push(Series::through(
        BOUND,
        BUDGETS.map(|budget| (f64::from(budget), least(MANY, budget))),
    ));
    second.push(Series::through(
        STATIC,
        BUDGETS.map(|budget| (f64::from(budget), f64::from(MANY))),
    ));
    let excess = |duel: &Duel| ops(duel) / least(duel.nodes, duel.budget);
    let mut third = policies(duels, by_nodes, excess);
    third.push(Series::through(
        BOUND,
        NODES.map(|nodes| (f64::from(nodes), 1.0)),
    ));
    let mut legend: Vec<_> = main()
        .into_iter()
        .map(|(name, look)| (Key::Series(look), name.to_owned()))
        .collect();
    legend.extend([
        (Key::Series(OTHER), "ablations".to_owned()),
        (Key::Series(BOUND), "N²/(2B)".to_owned()),
        (Key::Series(STATIC), "order known beforehand".to_owned()),
    ]);
    Plot {
        columns: 3,
        panels: vec![
            panel("ops by nodes", "nodes N", "ops", first),
            panel("ops by budget", "budget B (tensors)", "ops", second),
            panel("ops over the bound", "nodes N", "ops / (N²/(2B))", third),
        ],
        legend,
    }
}

/// A line a policy, the main ones last, so that they lie on top.
fn policies(
    duels: &[Duel],
    x: impl Fn(&Duel) -> Option<f64>,
    y: impl Fn(&Duel) -> f64,
) -> Vec<Series> {
    let main = main();
    let is_main = |name: &str| main.iter().any(|(other, _)| *other == name);
    let others = deterministic().filter(|name| !is_main(name));
    let all = others.map(|name| (name, OTHER)).chain(main.iter().copied());
    all.map(|(name, look)| {
        let mine = duels.iter().filter(|duel| duel.policy == name);
        let mut points: Vec<(f64, f64)> =
            mine.filter_map(|duel| Some((x(duel)?, y(duel)))).collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        Series::through(look, points)
    })
    .collect()
}

fn panel(title: &str, x: &str, y: &str, series: Vec<Series>) -> Panel {
    let places = series.iter().flat_map(|series| &series.points);
    Panel {
        title: title.into(),
        x: Axis::around(x, places.map(|(x, _)| *x), Scale::Log),
        y: Axis::around(y, series.iter().flat_map(Series::values), Scale::Log),
        bands: Vec::new(),
        series,
        notes: Notes::default(),
    }
}

fn numbers(duels: &[Duel]) -> Csv {
    let mut csv = Csv::new(&[
        "policy",
        "nodes",
        "budget_tensors",
        "ops",
        "bound_ops",
        "static_ops",
        "longest_path",
    ]);
    for duel in duels {
        csv.row(&[
            duel.policy.into(),
            duel.nodes.to_string(),
            duel.budget.to_string(),
            duel.forced.ops.to_string(),
            least(duel.nodes, duel.budget).to_string(),
            duel.nodes.to_string(),
            duel.forced.paths.iter().max().unwrap_or(&0).to_string(),
        ]);
    }
    csv
}
