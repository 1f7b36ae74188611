//! `remat plan chain --curve`.

use super::chain_refusal::{left_out, refused, without};
use crate::arguments::PlanChain;
use crate::failure::Failure;
use crate::{affordable, progress, table};
use remat_core::Bytes;
use remat_plan::chain::{Chain, PlanError, Point, Strategy, curve, overhead};
use std::io::{self, Write};

/// Points of a strategy that a table shows.
const SHOWN: usize = 16;

pub(crate) fn run(wanted: &PlanChain, chain: &Chain) -> Result<(), Failure> {
    let (strategies, out) = affordable::strategies(&wanted.strategies, chain.len());
    let alone = strategies.len() == 1;
    for (index, &strategy) in strategies.iter().enumerate() {
        let text = match points(wanted, chain, strategy) {
            Ok(points) if wanted.json => lines(chain, strategy, &points),
            Ok(points) => rows(chain, strategy, &points),
            Err(error) if alone => return Err(refused(wanted)(error)),
            Err(error) => without(wanted, strategy, &error),
        };
        if index == 0 && !wanted.json {
            print("strategy             budget        bytes      makespan  overhead\n")?;
        }
        print(&text)?;
    }
    let lines = out.iter().map(|left| left_out(wanted, left));
    print(&lines.collect::<String>())
}

fn points(wanted: &PlanChain, chain: &Chain, strategy: Strategy) -> Result<Vec<Point>, PlanError> {
    let largest = wanted.budget.map(|budget| budget.0);
    progress::while_planning(&strategy.to_string(), |show| {
        curve(chain, largest, strategy, wanted.slots, show)
    })
}

fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).map_err(Failure::output)
}

fn lines(chain: &Chain, strategy: Strategy, points: &[Point]) -> String {
    let smallest = points.first().map(|point| point.peak_bytes);
    let line = |point: &Point| {
        let line = serde_json::json!({
            "strategy": strategy.to_string(),
            "smallest_bytes": smallest,
            "budget_bytes": point.peak_bytes,
            "makespan": point.makespan,
            "overhead": overhead(chain, point.makespan),
        });
        format!("{line}\n")
    };
    points.iter().map(line).collect()
}

fn rows(chain: &Chain, strategy: Strategy, points: &[Point]) -> String {
    let row = |index: usize, point: &Point| {
        let remark = if index == 0 {
            "  smallest feasible"
        } else {
            ""
        };
        format!(
            "{strategy:<12}  {:>13}  {:>11}  {:>12}  {:>8.4}{remark}\n",
            Bytes(point.peak_bytes).to_string(),
            point.peak_bytes,
            table::time(point.makespan),
            overhead(chain, point.makespan)
        )
    };
    let shown = thinned(points.len());
    let mut text: String = shown
        .iter()
        .map(|&index| row(index, &points[index]))
        .collect();
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
