//! A lower bound on the time of every choice within a budget.

use crate::cut::error::CutError;
use crate::cut::evaluate::choice::Problem;
use crate::cut::search::snapshot::Lifetimes;
use crate::cut::search::snapshot_cut::SnapshotCut;

/// Number of moments of the backward pass at which the budget is looked at, one by one.
const MOMENTS: usize = 24;
/// Number of prices tried for each.
const PRICES: usize = 20;

/// The least nanoseconds that a choice within the budget recomputes (`recompute_ns`); `None` if there is certainly no
/// such choice.
///
/// At each of a few moments alone, bisection finds the price of memory that gives the highest bound: a choice within
/// the budget takes at least the time and price of the cheapest choice, less the price of the room.
pub(crate) fn bound(problem: &Problem<'_>, budget: u64) -> Result<Option<u64>, CutError> {
    let mut best = 0;
    let lifetimes = Lifetimes::of(problem);
    for op in lifetimes.crests(MOMENTS) {
        let snapshot = lifetimes.snapshot(op);
        match at(
            problem,
            &SnapshotCut::new(problem, &snapshot, &lifetimes.root),
            budget,
        )? {
            None => return Ok(None),
            Some(bound) => best = best.max(bound),
        }
    }
    Ok(Some(best))
}

fn at(problem: &Problem<'_>, cut: &SnapshotCut<'_>, budget: u64) -> Result<Option<u64>, CutError> {
    let Some(room) = cut.room(budget) else {
        return Ok(None);
    };
    let cost: u64 = problem.graph.nodes.iter().map(|node| node.cost).sum();
    let mut best = 0.0f64;
    // A byte costs nothing, or more than everything.
    let (mut low, mut high) = (1e-12f64, 4.0 * cost.max(1) as f64);
    for _ in 0..PRICES {
        let price = (low * high).sqrt();
        let priced = cut.cheapest(price)?;
        best = best.max(priced.least - price * room as f64);
        if priced.held > room {
            low = price;
        } else {
            high = price;
        }
    }
    // Times are whole.
    let bound = (best - 1e-6 * best.abs()).ceil().max(0.0) as u64;
    Ok((bound <= cost).then_some(bound))
}
