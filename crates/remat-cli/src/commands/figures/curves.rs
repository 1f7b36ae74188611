//! Chains planned for all budgets, by strategy.

use crate::affordable::{self, LeftOut};
use crate::failure::{complain, Failure};
use crate::progress;
use remat_core::Bytes;
use remat_figures::tables::chains::{Curve, Planned};
use remat_plan::chain::{self, Chain, PlanError, Point, Resolution, Strategy};
use std::ops::ControlFlow;

/// Plans chains by all strategies named, or those that their lengths allow; on standard error stands what is left out.
pub(super) fn of<'a>(
    chains: &'a [(String, Chain)],
    named: &[Strategy],
) -> Result<Vec<Planned<'a>>, Failure> {
    let planned = |(name, chain): &'a (String, Chain)| planned(name, chain, named);
    chains.iter().map(planned).collect()
}

fn planned<'a>(
    name: &'a str,
    chain: &'a Chain,
    named: &[Strategy],
) -> Result<Planned<'a>, Failure> {
    let everything =
        everything(chain).map_err(|error| Failure::Input(format!("{name}: {error}")))?;
    let (wanted, out) = affordable::strategies(named, chain.len());
    let mut curves: Vec<Curve> = wanted
        .into_iter()
        .map(|strategy| curve(chain, strategy, everything, name))
        .collect();
    curves.extend(out.into_iter().map(without));
    curves.sort_by_key(|curve| {
        let same = |other: &Strategy| *other == curve.strategy;
        Strategy::ALL.iter().position(same)
    });
    for curve in &curves {
        if let Err(reason) = &curve.points {
            complain(format_args!(
                "remat: {name}: {} is left out: {reason}",
                curve.strategy
            ));
        }
    }
    Ok(Planned {
        name,
        chain,
        curves,
    })
}

fn without(left: LeftOut) -> Curve {
    Curve {
        strategy: left.strategy,
        points: Err(left.reason),
    }
}

fn curve(chain: &Chain, strategy: Strategy, everything: u64, name: &str) -> Curve {
    let up_to = |largest: u64| {
        let heading = format!("{name}, {strategy}, {}", Bytes(largest));
        progress::while_planning(&heading, |show| {
            chain::curve(chain, Some(largest), strategy, Resolution::default(), show)
        })
    };
    let points = match affordable::longest(strategy) {
        Some(_) => by_octaves(everything, up_to),
        None => up_to(everything),
    };
    let reason = |error| match error {
        PlanError::Infeasible { smallest, .. } => format!(
            "it needs at least {} ({smallest} bytes), more than keeping everything",
            Bytes(smallest)
        ),
        other => other.to_string(),
    };
    Curve {
        strategy,
        points: points.map_err(reason),
    }
}

/// The best of curves up to this budget, to a half of it, a quarter and so on: slots are parts of the largest budget, and for small
/// budgets of long chains those of a single curve would be too coarse.
fn by_octaves(
    everything: u64,
    up_to: impl Fn(u64) -> Result<Vec<Point>, PlanError>,
) -> Result<Vec<Point>, PlanError> {
    let mut points = up_to(everything)?;
    let smallest = points.first().map_or(everything, |point| point.peak_bytes);
    let most = points.last().map_or(0, |point| point.peak_bytes);
    let mut largest = most.min(everything / 2);
    while largest > smallest {
        points.extend(up_to(largest)?);
        largest /= 2;
    }
    Ok(falling(points))
}

/// The points that no other is better than, in order of memory.
fn falling(mut points: Vec<Point>) -> Vec<Point> {
    points.sort_by(|a, b| {
        let bytes = a.peak_bytes.cmp(&b.peak_bytes);
        bytes.then(a.makespan.total_cmp(&b.makespan))
    });
    let mut least = f64::INFINITY;
    points.retain(|point| {
        let better = point.makespan < least;
        least = least.min(point.makespan);
        better
    });
    points
}

/// Bytes of a step that keeps everything.
pub(super) fn everything(chain: &Chain) -> Result<u64, PlanError> {
    let go_on = &mut |_| ControlFlow::Continue(());
    let slots = Resolution::default();
    chain::plan(chain, u64::MAX, Strategy::None, slots, go_on).map(|plan| plan.peak_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    fn points(pairs: &[(u64, f64)]) -> Vec<Point> {
        let point = |&(peak_bytes, makespan): &(u64, f64)| Point {
            peak_bytes,
            makespan,
        };
        pairs.iter().map(point).collect()
    }

    #[test]
    fn octaves_reach_down_to_the_smallest_budget_and_the_best_points_stay() {
        let asked = RefCell::new(Vec::new());
        let up_to = |largest: u64| {
            asked.borrow_mut().push(largest);
            Ok(match largest {
                1000 => points(&[(100, 9.0), (500, 4.0), (1000, 1.0)]),
                500 => points(&[(100, 9.0), (400, 4.0), (500, 3.0)]),
                250 => points(&[(100, 9.0), (240, 5.0)]),
                _ => points(&[(100, 9.0), (110, 5.0)]),
            })
        };
        let best = by_octaves(1000, up_to).unwrap();
        assert_eq!(asked.into_inner(), [1000, 500, 250, 125]);
        let expected = [(100, 9.0), (110, 5.0), (400, 4.0), (500, 3.0), (1000, 1.0)];
        assert_eq!(best, points(&expected));
    }

    #[test]
    fn a_refusal_is_the_curves() {
        let refused = by_octaves(8, |_| Err(PlanError::TooFine { entries: 3 }));
        assert_eq!(refused, Err(PlanError::TooFine { entries: 3 }));
    }
}
