//! Plans of a step as a table, as the rows of a curve, and as lines of JSON.

use super::known::Online;
use super::recorded::{Asked, Recorded};
use crate::table;
use crate::table::bytes;
use crate::terminal::plain;
use remat_core::Bytes;
use remat_plan::step::{StepError, StepPlan};

/// A budget, and all that is told of it.
pub(super) struct Told {
    pub(super) budget: Asked,
    /// The online policy that recomputes least, if any fits.
    pub(super) online: Option<Online>,
    pub(super) plan: Option<StepPlan>,
    /// Why the budget's own search has no plan, if it has none.
    pub(super) unmet: Option<StepError>,
}

/// How far all runs of a plan are above the bound, as a part of it.
fn gap(plan: &StepPlan) -> f64 {
    let total = plan.cost_ns.saturating_add(plan.recompute_ns);
    part(total.saturating_sub(plan.bound_ns), plan.bound_ns)
}

fn part(of: u64, whole: u64) -> f64 {
    of as f64 / whole.max(1) as f64
}

fn percent(part: f64) -> String {
    format!("{:.2}%", 100.0 * part)
}

fn best_online(recorded: &Recorded, told: &Told) -> String {
    told.online.as_ref().map_or_else(
        || "none fits".into(),
        |online| {
            let overhead = part(online.reruns.cost.0, recorded.base.cost.0);
            format!("{} ({})", percent(overhead), online.policy)
        },
    )
}

/// One plan.
pub(super) fn table(recorded: &Recorded, told: &Told, plan: &StepPlan) -> String {
    const BEST: &str = "the best schedule whose first runs are in program order";
    let overhead = percent(part(plan.recompute_ns, plan.cost_ns));
    let again = table::duration(plan.recompute_ns);
    let cost = table::duration(plan.cost_ns);
    let bound = match gap(plan) {
        0.0 => BEST.to_owned(),
        gap => format!("within {} of {BEST}", percent(gap)),
    };
    let ratio = told.budget.ratio;
    let arena = plan.addresses.as_ref().map(|addresses| {
        let part = part(addresses.bytes, plan.peak_bytes);
        let arena = format!("{}, {part:.4} of the peak", bytes(addresses.bytes));
        ("arena", arena)
    });
    let mut rows = vec![
        (
            "budget",
            format!(
                "{}, {ratio:.3} of the memory without a limit",
                bytes(plan.budget_bytes)
            ),
        ),
        ("peak", bytes(plan.peak_bytes)),
    ];
    rows.extend(arena);
    rows.extend([
        (
            "overhead",
            format!("{overhead}: {again} again, beside {cost}"),
        ),
        ("bound", bound),
        ("best online", best_online(recorded, told)),
        ("rounds", plan.iterations.to_string()),
        ("seed", plan.seed.to_string()),
    ]);
    table::text(&rows)
}

/// Several budgets, a row each.
pub(super) fn curve(recorded: &Recorded, seed: u64, told: &[Told]) -> String {
    let base = &recorded.base;
    let mut text = format!(
        "\n{}: {} and {} without a limit; seed {seed}\n\
         ratio       budget         peak  overhead   within  best online          rounds\n",
        plain(&recorded.name),
        base.memory,
        table::duration(base.cost.0),
    );
    text.extend(told.iter().map(|told| row(recorded, told)));
    text + "within: of the best schedule whose first runs are in program order\n"
}

fn row(recorded: &Recorded, told: &Told) -> String {
    let online = best_online(recorded, told);
    let none = || ["-".to_owned(), "-".into(), "-".into(), "-".into()];
    let figures = |plan: &StepPlan| {
        let overhead = percent(part(plan.recompute_ns, plan.cost_ns));
        let peak = Bytes(plan.peak_bytes).to_string();
        [
            peak,
            overhead,
            percent(gap(plan)),
            plan.iterations.to_string(),
        ]
    };
    let [peak, overhead, gap, rounds] = told.plan.as_ref().map_or_else(none, figures);
    format!(
        "{:.3}  {:>11}  {peak:>11}  {overhead:>8}  {gap:>7}  {online:<19}  {rounds:>6}\n",
        told.budget.ratio,
        told.budget.bytes.to_string(),
    )
}

/// A line of JSON a budget.
pub(super) fn lines(recorded: &Recorded, told: &[Told]) -> String {
    told.iter().map(|told| line(recorded, told)).collect()
}

fn line(recorded: &Recorded, told: &Told) -> String {
    let plan = told.plan.as_ref();
    let base = &recorded.base;
    let overhead = |again: u64, cost: u64| 1.0 + part(again, cost);
    let online = told.online.as_ref().map(|online| {
        serde_json::json!({
            "policy": online.policy.to_string(),
            "recompute_ns": online.reruns.cost.0,
            "overhead": overhead(online.reruns.cost.0, base.cost.0),
        })
    });
    let line = serde_json::json!({
        "log": recorded.name,
        "ratio": told.budget.ratio,
        "budget_bytes": told.budget.bytes.0,
        "base_memory": base.memory.0,
        "cost_ns": base.cost.0,
        "peak_bytes": plan.map(|plan| plan.peak_bytes),
        "arena_bytes": plan.and_then(|plan| Some(plan.addresses.as_ref()?.bytes)),
        "recompute_ns": plan.map(|plan| plan.recompute_ns),
        "overhead": plan.map(|plan| overhead(plan.recompute_ns, plan.cost_ns)),
        "bound_ns": plan.map(|plan| plan.bound_ns),
        "gap": plan.map(gap),
        "online": online,
        "iterations": plan.map(|plan| plan.iterations),
        "seed": plan.map(|plan| plan.seed),
    });
    format!("{line}\n")
}
