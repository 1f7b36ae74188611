//! `remat plan chain`.

use super::chain_refusal::{refused, without};
use super::curve;
use crate::arguments::PlanChain;
use crate::failure::Failure;
use crate::table::{Row, bytes};
use crate::{plan_file, progress, table};
use remat_core::Bytes;
use remat_plan::chain::{Action, Chain, Op, Plan, PlanError, Strategy, plan};
use std::io::{self, Write};

pub(crate) fn run(wanted: &PlanChain) -> Result<(), Failure> {
    let chain = plan_file::chain(&wanted.chain)?;
    if wanted.curve {
        return curve::run(wanted, &chain);
    }
    let strategies = match wanted.strategies.as_slice() {
        [] => &[Strategy::Persistent],
        given => given,
    };
    match strategies {
        &[strategy] => {
            let plan = planned(wanted, &chain, strategy).map_err(refused(wanted))?;
            if wanted.json {
                print_json(&plan)
            } else {
                table::print(&rows(&plan))
            }
        }
        several => compare(wanted, &chain, several),
    }
}

fn planned(wanted: &PlanChain, chain: &Chain, strategy: Strategy) -> Result<Plan, PlanError> {
    let budget = wanted.budget.map_or(u64::MAX, |budget| budget.0);
    progress::while_planning(&strategy.to_string(), |show| {
        plan(chain, budget, strategy, wanted.slots, show)
    })
}

fn print_json(plan: &Plan) -> Result<(), Failure> {
    let line = serde_json::to_string(plan).map_err(|error| Failure::Input(error.to_string()))?;
    writeln!(io::stdout(), "{line}").map_err(Failure::output)
}

fn rows(plan: &Plan) -> Vec<Row> {
    vec![
        (
            "strategy",
            format!("{}, slots: {}", plan.strategy, plan.slots),
        ),
        ("stages", plan.stages.to_string()),
        ("budget", bytes(plan.budget_bytes)),
        ("peak", bytes(plan.peak_bytes)),
        ("makespan", table::time(plan.makespan)),
        ("overhead", format!("{:.4}", plan.overhead)),
        ("planned in", format!("{:.3} s", plan.planning_seconds)),
        ("sequence", words(&plan.sequence)),
    ]
}

/// A sequence as people write it: `Fck1 Fnone2..5 Fall6 B6`.
fn words(ops: &[Op]) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut rest = ops;
    while let Some(first) = rest.first() {
        let follows = |pair: &[Op]| {
            let next = match pair[0].action {
                Action::Backward => pair[1].stage + 1 == pair[0].stage,
                _ => pair[0].stage + 1 == pair[1].stage,
            };
            next && pair[0].action == pair[1].action
        };
        let run = 1 + rest.windows(2).take_while(|pair| follows(pair)).count();
        words.push(match run {
            1 => first.to_string(),
            _ => format!("{first}..{}", rest[run - 1].stage),
        });
        rest = &rest[run..];
    }
    words.join(" ")
}

/// A line a strategy; those that have no plan say what they would need.
fn compare(wanted: &PlanChain, chain: &Chain, strategies: &[Strategy]) -> Result<(), Failure> {
    let mut first = true;
    for &strategy in strategies {
        let planned = planned(wanted, chain, strategy);
        let line = match planned {
            Ok(plan) if wanted.json => {
                print_json(&plan)?;
                continue;
            }
            Ok(plan) => format!(
                "{strategy:<12}  {:>12}  {:>8.4}  {:>11}  {:>9.3}\n",
                table::time(plan.makespan),
                plan.overhead,
                Bytes(plan.peak_bytes).to_string(),
                plan.planning_seconds
            ),
            Err(error) => without(wanted, strategy, &error),
        };
        let mut out = io::stdout().lock();
        if first && !wanted.json {
            let heading = "strategy          makespan  overhead         peak  planned s";
            writeln!(out, "{heading}").map_err(Failure::output)?;
        }
        first = false;
        out.write_all(line.as_bytes()).map_err(Failure::output)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_written_as_ranges() {
        let op = |action, stage| Op { action, stage };
        let ops = [
            op(Action::ForwardCheckpoint, 1),
            op(Action::ForwardNone, 2),
            op(Action::ForwardNone, 3),
            op(Action::ForwardAll, 4),
            op(Action::Backward, 4),
            op(Action::Backward, 3),
        ];
        assert_eq!(words(&ops), "Fck1 Fnone2..3 Fall4 B4..3");
        assert_eq!(words(&[]), "");
    }
}
