//! `remat plan chain`.

use crate::affordable::LeftOut;
use crate::arguments::PlanChain;
use crate::failure::Failure;
use crate::{plan_curve, progress, table};
use remat_core::Bytes;
use remat_plan::chain::{plan, Action, Chain, Op, Plan, PlanError, Strategy};
use serde_json::json;
use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::ControlFlow;
use std::path::Path;

pub(crate) fn run(wanted: &PlanChain) -> Result<(), Failure> {
    let chain = read(&wanted.chain)?;
    if wanted.curve {
        return plan_curve::run(wanted, &chain);
    }
    let strategies = match wanted.strategies.as_slice() {
        [] => &[Strategy::Persistent],
        given => given,
    };
    match strategies {
        &[strategy] => {
            let plan = planned(wanted, &chain, strategy).map_err(refused(wanted))?;
            match wanted.json {
                true => print_json(&plan),
                false => table::print(&rows(&plan)),
            }
        }
        several => compare(wanted, &chain, several),
    }
}

/// Reads a chain.
pub(crate) fn read(path: &Path) -> Result<Chain, Failure> {
    let text = text_of(path)?;
    let chain = text.parse::<Chain>();
    chain.map_err(|error| Failure::Input(format!("{}: {error}", path.display())))
}

/// The text of a file, or of standard input for `-`.
pub(crate) fn text_of(path: &Path) -> Result<String, Failure> {
    const LONGEST: u64 = 256 << 20;
    let unreadable = |error: io::Error| {
        Failure::Input(format!(
            "{}: cannot be read: {error}; check the path and that it is UTF-8 text",
            path.display()
        ))
    };
    let mut text = String::new();
    let read = match path == Path::new("-") {
        true => io::stdin()
            .lock()
            .take(LONGEST + 1)
            .read_to_string(&mut text),
        false => File::open(path).and_then(|file| file.take(LONGEST + 1).read_to_string(&mut text)),
    };
    match read.map_err(unreadable)? as u64 > LONGEST {
        true => Err(Failure::Input(format!(
            "{}: longer than {}; chains and plans are not that long",
            path.display(),
            Bytes(LONGEST)
        ))),
        false => Ok(text),
    }
}

fn planned(wanted: &PlanChain, chain: &Chain, strategy: Strategy) -> Result<Plan, PlanError> {
    let budget = wanted.budget.map_or(u64::MAX, |budget| budget.0);
    let bar = progress::planning(&strategy.to_string());
    let mut show = |part| {
        progress::planned(&bar, part);
        ControlFlow::Continue(())
    };
    let planned = plan(chain, budget, strategy, wanted.slots, &mut show);
    bar.finish_and_clear();
    planned
}

/// What a refusal means for the file that was to be planned.
pub(crate) fn refused(wanted: &PlanChain) -> impl Fn(PlanError) -> Failure + '_ {
    |error| {
        let place = wanted.chain.display();
        Failure::Input(match &error {
            PlanError::Infeasible {
                strategy,
                budget,
                smallest,
            } => format!(
                "{place}: no {strategy} plan fits in {} ({budget} bytes); use --budget {smallest} ({}) or more",
                Bytes(*budget),
                Bytes(*smallest)
            ),
            _ => format!("{place}: {error}"),
        })
    }
}

fn print_json(plan: &Plan) -> Result<(), Failure> {
    let line = serde_json::to_string(plan).map_err(|error| Failure::Input(error.to_string()))?;
    writeln!(io::stdout(), "{line}").map_err(Failure::output)
}

fn rows(plan: &Plan) -> Vec<(String, String)> {
    let bytes = |bytes| format!("{} ({bytes} bytes)", Bytes(bytes));
    [
        (
            "strategy",
            format!("{}, slots: {}", plan.strategy, plan.slots),
        ),
        ("stages", plan.stages.to_string()),
        ("budget", bytes(plan.budget_bytes)),
        ("peak", bytes(plan.peak_bytes)),
        ("makespan", number(plan.makespan)),
        ("overhead", format!("{:.4}", plan.overhead)),
        ("planned in", format!("{:.3} s", plan.planning_seconds)),
        ("sequence", words(&plan.sequence)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec()
}

/// A time in the chain's unit.
pub(crate) fn number(time: f64) -> String {
    let text = format!("{time:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
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
                number(plan.makespan),
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

/// The line of a strategy that has no plan, among others that may have one.
pub(crate) fn without(wanted: &PlanChain, strategy: Strategy, error: &PlanError) -> String {
    match error {
        PlanError::Infeasible { smallest, .. } if wanted.json => {
            let line = json!({"strategy": strategy.to_string(), "smallest_bytes": smallest});
            format!("{line}\n")
        }
        PlanError::Infeasible { smallest, .. } => format!(
            "{strategy:<12}  needs at least {} ({smallest} bytes)\n",
            Bytes(*smallest)
        ),
        other => {
            let reason = other.to_string();
            left_out(wanted, &LeftOut { strategy, reason })
        }
    }
}

/// The line of a strategy that was not planned.
pub(crate) fn left_out(wanted: &PlanChain, left: &LeftOut) -> String {
    let LeftOut { strategy, reason } = left;
    match wanted.json {
        true => {
            let line = json!({"strategy": strategy.to_string(), "left_out": reason});
            format!("{line}\n")
        }
        false => format!("{strategy:<12}  left out: {reason}\n"),
    }
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
