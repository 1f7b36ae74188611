//! Memory against time of a strategy over all budgets: the best of curves for all memory, for half of it, a quarter
//! and so on.

use super::planner::undominated;
use super::{Chain, PlanError, Point, Progress, Resolution, Strategy, curve, plan};
use std::ops::ControlFlow;

/// Bytes of a step that keeps everything.
///
/// # Errors
/// The chain's numbers may be too large to be counted.
pub fn everything(chain: &Chain) -> Result<u64, PlanError> {
    let go_on = &mut |_| ControlFlow::Continue(());
    let slots = Resolution::default();
    plan(chain, u64::MAX, Strategy::None, slots, go_on).map(|plan| plan.peak_bytes)
}

/// The curve of a strategy up to [`everything`]. Slots are parts of the largest budget: for small budgets of long
/// chains those of a single curve would be too coarse, so that it is the best of curves for smaller and smaller
/// budgets.
///
/// # Errors
/// As [`curve`] has them.
pub fn best_curve(
    chain: &Chain,
    strategy: Strategy,
    progress: &mut Progress,
) -> Result<Vec<Point>, PlanError> {
    by_octaves(everything(chain)?, |largest| {
        curve(
            chain,
            Some(largest),
            strategy,
            Resolution::default(),
            progress,
        )
    })
}

fn by_octaves(
    everything: u64,
    mut up_to: impl FnMut(u64) -> Result<Vec<Point>, PlanError>,
) -> Result<Vec<Point>, PlanError> {
    let mut points = up_to(everything)?;
    let smallest = points.first().map_or(everything, |point| point.peak_bytes);
    let most = points.last().map_or(0, |point| point.peak_bytes);
    let mut largest = most.min(everything / 2);
    while largest > smallest {
        points.extend(up_to(largest)?);
        largest /= 2;
    }
    Ok(undominated(points))
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
