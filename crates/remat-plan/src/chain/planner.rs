//! Plans and curves of a chain, by strategy and budget.

use crate::chain::baselines::candidates;
use crate::chain::model::chain::Chain;
use crate::chain::model::cost::{Cost, cost_of};
use crate::chain::model::error::PlanError;
use crate::chain::model::progress::Progress;
use crate::chain::model::sequence::Plan;
use crate::chain::model::strategy::{Resolution, Strategy};
use crate::chain::recurrences::program::Class;
use crate::chain::tables::optimum::Problem;
use std::time::Instant;

/// One point of a curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Peak of the plan, in bytes: a budget in which it fits.
    pub peak_bytes: u64,
    /// Its makespan, in the chain's unit of time.
    pub makespan: f64,
}

/// The best plan of a strategy within a budget of bytes.
///
/// A plan never exceeds the budget: its peak is counted in bytes whatever the resolution. With slots, rounding may
/// give a slightly longer plan for a bigger budget; with [`Resolution::Exact`] it never does.
///
/// ```
/// use remat_plan::chain::{plan, Chain, PlanError, Resolution, Strategy};
///
/// let stage = r#"{"forward_time": 1, "backward_time": 2, "activation_bytes": 1, "saved_bytes": 3}"#;
/// let chain: Chain = format!(r#"{{"input_bytes": 1, "stages": [{}]}}"#, [stage; 8].join(",")).parse()?;
/// let go_on = &mut |_| std::ops::ControlFlow::Continue(());
///
/// let plenty = plan(&chain, 100, Strategy::Persistent, Resolution::Exact, go_on)?;
/// assert_eq!((plenty.makespan, plenty.peak_bytes), (24.0, 27));
/// let tight = plan(&chain, 12, Strategy::Persistent, Resolution::Exact, go_on)?;
/// assert!(tight.makespan > 24.0 && tight.peak_bytes <= 12);
/// let refused = plan(&chain, 5, Strategy::Persistent, Resolution::Exact, go_on);
/// assert!(matches!(refused, Err(PlanError::Infeasible { smallest: 7, .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn plan(
    chain: &Chain,
    budget: u64,
    strategy: Strategy,
    resolution: Resolution,
    progress: &mut Progress,
) -> Result<Plan, PlanError> {
    let start = Instant::now();
    let name = strategy.to_string();
    let (ops, cost) = match Class::of(strategy) {
        Some(class) => Problem {
            chain,
            budget,
            class,
            resolution,
            name: &name,
        }
        .best(progress)?,
        None => candidates::best(chain, budget, strategy, progress)?,
    };
    Ok(Plan {
        strategy: name,
        slots: resolution.to_string(),
        stages: chain.len(),
        budget_bytes: budget,
        makespan: cost.makespan,
        peak_bytes: cost.peak,
        overhead: overhead(chain, cost.makespan),
        planning_seconds: start.elapsed().as_secs_f64(),
        sequence: ops,
    })
}

/// A makespan over that of a step that recomputes nothing; 1 where nothing takes any time.
pub fn overhead(chain: &Chain, makespan: f64) -> f64 {
    match chain.unconstrained_time() {
        0.0 => 1.0,
        once => makespan / once,
    }
}

/// Memory against time of a strategy, for all budgets up to `largest` bytes, or for all budgets that save any time if
/// that is not given. Peaks rise and makespans fall; the first point is the smallest feasible budget.
///
/// Strategies with tables fill them once, at the cost of a plan for the largest budget.
pub fn curve(
    chain: &Chain,
    largest: Option<u64>,
    strategy: Strategy,
    resolution: Resolution,
    progress: &mut Progress,
) -> Result<Vec<Point>, PlanError> {
    let largest = largest.unwrap_or(u64::MAX);
    let costs = match Class::of(strategy) {
        Some(class) => Problem {
            chain,
            budget: largest.min(cost_of(chain, &class.fastest(chain.len())).peak),
            class,
            resolution,
            name: &strategy.to_string(),
        }
        .curve(progress)?,
        None => {
            let mut costs = Vec::new();
            candidates::each(chain, strategy, progress, |_, cost| costs.push(cost))?;
            costs
        }
    };
    let points = pareto(costs.iter().filter(|cost| cost.peak <= largest));
    match (points.is_empty(), costs.iter().map(|cost| cost.peak).min()) {
        (true, Some(smallest)) => Err(PlanError::Infeasible {
            strategy: strategy.to_string(),
            budget: largest,
            smallest,
        }),
        _ => Ok(points),
    }
}

/// The costs that no other beats in both memory and time, peaks rising.
fn pareto<'a>(costs: impl Iterator<Item = &'a Cost>) -> Vec<Point> {
    let point = |cost: &Cost| Point {
        peak_bytes: cost.peak,
        makespan: cost.makespan,
    };
    undominated(costs.map(point).collect())
}

/// The points that no other beats in both memory and time, peaks rising.
pub(super) fn undominated(mut points: Vec<Point>) -> Vec<Point> {
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
