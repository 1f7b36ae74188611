//! `remat plan chain --curve`.

use crate::arguments::PlanChain;
use crate::failure::Failure;
use crate::plan_chain::{number, refused};
use crate::progress;
use remat_core::Bytes;
use remat_plan::chain::{curve, overhead, Chain, PlanError, Point, Strategy};
use std::io::{self, Write};
use std::ops::ControlFlow;

/// Points of a strategy that people are shown.
const SHOWN: usize = 16;

pub(crate) fn run(wanted: &PlanChain, chain: &Chain) -> Result<(), Failure> {
    let usual = Strategy::ALL
        .into_iter()
        .filter(|strategy| !matches!(strategy, Strategy::Floating | Strategy::Free));
    let strategies: Vec<Strategy> = match wanted.strategies.is_empty() {
        true => usual.collect(),
        false => wanted.strategies.clone(),
    };
    for (index, &strategy) in strategies.iter().enumerate() {
        let bar = progress::planning(&strategy.to_string());
        let mut show = |part| {
            progress::planned(&bar, part);
            ControlFlow::Continue(())
        };
        let largest = wanted.budget.map(|budget| budget.0);
        let points = curve(chain, largest, strategy, wanted.slots, &mut show);
        bar.finish_and_clear();
        let text = match points {
            Ok(points) if wanted.json => lines(chain, strategy, &points),
            Ok(points) => rows(chain, strategy, &points),
            Err(error @ PlanError::Infeasible { .. }) if strategies.len() == 1 => {
                return Err(refused(wanted)(error));
            }
            Err(PlanError::Infeasible { smallest, .. }) if wanted.json => {
                let line = serde_json::json!({
                    "strategy": strategy.to_string(),
                    "smallest_bytes": smallest,
                });
                format!("{line}\n")
            }
            Err(PlanError::Infeasible { smallest, .. }) => format!(
                "{strategy:<12}  needs at least {} ({smallest} bytes)\n",
                Bytes(smallest)
            ),
            Err(error) => return Err(refused(wanted)(error)),
        };
        let mut out = io::stdout().lock();
        if index == 0 && !wanted.json {
            let heading = "strategy             budget        bytes      makespan  overhead";
            writeln!(out, "{heading}").map_err(Failure::output)?;
        }
        out.write_all(text.as_bytes()).map_err(Failure::output)?;
    }
    Ok(())
}

fn lines(chain: &Chain, strategy: Strategy, points: &[Point]) -> String {
    let line = |point: &Point| {
        let line = serde_json::json!({
            "strategy": strategy.to_string(),
            "budget_bytes": point.peak_bytes,
            "makespan": point.makespan,
            "overhead": overhead(chain, point.makespan),
        });
        format!("{line}\n")
    };
    points.iter().map(line).collect()
}

fn rows(chain: &Chain, strategy: Strategy, points: &[Point]) -> String {
    let row = |point: &Point| {
        format!(
            "{strategy:<12}  {:>13}  {:>11}  {:>12}  {:>8.4}\n",
            Bytes(point.peak_bytes).to_string(),
            point.peak_bytes,
            number(point.makespan),
            overhead(chain, point.makespan)
        )
    };
    let shown = thinned(points.len());
    let mut text: String = shown.iter().map(|&index| row(&points[index])).collect();
    if shown.len() < points.len() {
        let hidden = points.len() - shown.len();
        text += &format!("{strategy:<12}  {hidden} points between; --json tells all\n");
    }
    text
}

/// At most [`SHOWN`] of so many points, the first and the last among them.
fn thinned(count: usize) -> Vec<usize> {
    let shown = count.min(SHOWN);
    let place = |k: usize| k * (count - 1) / (shown - 1).max(1);
    (0..shown).map(place).collect()
}
