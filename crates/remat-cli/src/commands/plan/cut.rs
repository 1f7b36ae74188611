//! `remat plan cut`.

use crate::arguments::PlanCut;
use crate::failure::Failure;
use crate::table::{Row, bytes};
use crate::terminal::plain;
use crate::{plan_file, progress, table};
use remat_core::Bytes;
use remat_plan::cut::{
    Budgets, Cut, CutError, FrontierPlan, Handover, JointGraph, Nearest, Planned, Tradeoff, Wishes,
    between_groups, partition,
};
use serde::Serialize;
use std::io::{self, Write};

pub(crate) fn run(wanted: &PlanCut) -> Result<(), Failure> {
    let graph = plan_file::graph(&wanted.graph)?;
    if wanted.groups {
        return groups(wanted, &graph);
    }
    let wishes = Wishes {
        nearest: if wanted.no_reweight {
            Nearest::Forward
        } else {
            Nearest::Backward
        },
        ..Wishes::default()
    };
    if wanted.budget.is_none() && !wanted.curve && !wanted.frontier {
        let cut = partition(&graph, &wishes).map_err(refused(wanted))?;
        return print(wanted, &cut, rows(&cut));
    }
    let budgets = searched(&graph, &wishes).map_err(refused(wanted))?;
    // For several plans too: it is refused where none of them fits.
    let within = |budget: Bytes| budgets.plan(budget.0).map_err(refused(wanted));
    match wanted.budget.map(within).transpose()? {
        _ if wanted.frontier => frontier(wanted, &budgets.frontier()),
        Some(planned) if !wanted.curve => print(wanted, &planned, planned_rows(&planned)),
        _ => curve(wanted, &budgets.tradeoffs()),
    }
}

fn searched<'a>(graph: &'a JointGraph, wishes: &Wishes) -> Result<Budgets<'a>, CutError> {
    progress::while_planning("budgets", |show| Budgets::new(graph, wishes, show))
}

fn refused(wanted: &PlanCut) -> impl Fn(CutError) -> Failure + '_ {
    |error| Failure::Input(format!("{}: {error}", wanted.graph.display()))
}

/// One line of JSON, or a table of these rows.
fn print(wanted: &PlanCut, value: &impl Serialize, rows: Vec<Row>) -> Result<(), Failure> {
    if wanted.json {
        return print_json(value);
    }
    table::print(&rows)
}

fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let line = serde_json::to_string(value).map_err(|error| Failure::Input(error.to_string()))?;
    writeln!(io::stdout(), "{line}").map_err(Failure::output)
}

fn rows(cut: &Cut) -> Vec<Row> {
    vec![
        ("saved", words(&cut.saved)),
        ("saved bytes", bytes(cut.saved_bytes)),
        ("cost", bytes(cut.cost)),
        ("recomputed", words(&cut.recomputed)),
        ("lifted bans", words(&cut.lifted)),
        ("takes again", table::duration(cut.recompute_ns)),
        ("peak", bytes(cut.peak_bytes)),
        ("planned in", format!("{:.3} s", cut.seconds)),
    ]
}

fn planned_rows(planned: &Planned) -> Vec<Row> {
    let mut rows = vec![("budget", bytes(planned.budget_bytes))];
    rows.extend(rows_with_bound(planned));
    rows
}

fn rows_with_bound(planned: &Planned) -> Vec<Row> {
    let mut rows = rows(&planned.cut);
    let bound = format!("{}, at best", table::duration(planned.bound_ns));
    let after = rows.iter().position(|row| row.0 == "takes again");
    rows.insert(after.map_or(0, |row| row + 1), ("any plan", bound));
    rows
}

/// The number of names, and the first of them.
fn words(names: &[String]) -> String {
    const SHOWN: usize = 12;
    let shown = names.iter().take(SHOWN).map(|name| plain(name));
    let shown = shown.collect::<Vec<_>>().join(" ");
    match names.len() {
        0 => "none".into(),
        count if count > SHOWN => format!("{count}: {shown} .."),
        count => format!("{count}: {shown}"),
    }
}

fn curve(wanted: &PlanCut, tradeoffs: &[Tradeoff]) -> Result<(), Failure> {
    let most = wanted.budget.map_or(u64::MAX, |budget| budget.0);
    if !wanted.json {
        let heading = format!("{:>20}  {:>12}", "peak bytes", "takes again");
        writeln!(io::stdout(), "{heading}").map_err(Failure::output)?;
    }
    for tradeoff in tradeoffs.iter().filter(|one| one.peak_bytes <= most) {
        if wanted.json {
            print_json(tradeoff)?;
            continue;
        }
        let time = table::duration(tradeoff.recompute_ns);
        let line = format!("{:>20}  {time:>12}", tradeoff.peak_bytes);
        writeln!(io::stdout(), "{line}").map_err(Failure::output)?;
    }
    Ok(())
}

fn frontier(wanted: &PlanCut, plans: &[FrontierPlan]) -> Result<(), Failure> {
    let most = wanted.budget.map_or(u64::MAX, |budget| budget.0);
    for plan in plans.iter().filter(|plan| plan.peak_bytes <= most) {
        if wanted.json {
            print_json(plan)?;
            continue;
        }
        let line = format!(
            "{} bytes, {} again: saves {}; recomputes {}; lifts {}",
            plan.peak_bytes,
            table::duration(plan.recompute_ns),
            words(&plan.saved),
            words(&plan.recomputed),
            words(&plan.lifted)
        );
        writeln!(io::stdout(), "{line}").map_err(Failure::output)?;
    }
    Ok(())
}

fn groups(wanted: &PlanCut, graph: &JointGraph) -> Result<(), Failure> {
    for handover in between_groups(graph).map_err(refused(wanted))? {
        if wanted.json {
            print_json(&handover)?;
            continue;
        }
        let Handover {
            producer,
            consumer,
            read,
            recomputed,
            cost,
            plain_cost,
        } = handover;
        let line = format!(
            "group {producer} -> {consumer}: {cost} bytes, {plain_cost} without recomputing; reads {}; recomputes {}",
            words(&read),
            words(&recomputed)
        );
        writeln!(io::stdout(), "{line}").map_err(Failure::output)?;
    }
    Ok(())
}
