//! How much time any choice within a budget takes at least.

use crate::cut::error::CutError;
use crate::cut::evaluate::choice::Question;
use crate::cut::search::snapshot::Sketch;
use crate::cut::search::snapshot_cut::Relaxation;

/// Moments of the backward pass at which the budget is looked at, one by one.
const MOMENTS: usize = 24;
/// Prices tried for each.
const PRICES: usize = 20;

/// Nanoseconds that every choice within the budget recomputes at least (`recompute_ns`); `None` if there is no such choice for certain.
///
/// At each of a few moments alone the budget is exchanged for the price of memory that gives the highest bound, by bisection: a choice
/// within the budget takes at least what is cheapest at this price, less the price of the room.
pub(crate) fn bound(question: &Question<'_>, budget: u64) -> Result<Option<u64>, CutError> {
    let mut best = 0;
    let sketch = Sketch::of(question);
    for op in sketch.crests(MOMENTS) {
        let moment = sketch.moment(op);
        match at(
            question,
            &Relaxation::new(question, &moment, &sketch.root),
            budget,
        )? {
            None => return Ok(None),
            Some(bound) => best = best.max(bound),
        }
    }
    Ok(Some(best))
}

fn at(
    question: &Question<'_>,
    moment: &Relaxation<'_>,
    budget: u64,
) -> Result<Option<u64>, CutError> {
    let Some(room) = moment.room(budget) else {
        return Ok(None);
    };
    let cost: u64 = question.graph.nodes.iter().map(|node| node.cost).sum();
    let mut best = 0.0f64;
    // A byte costs nothing, or more than everything.
    let (mut low, mut high) = (1e-12f64, 4.0 * cost.max(1) as f64);
    for _ in 0..PRICES {
        let price = (low * high).sqrt();
        let relaxed = moment.cheapest(price)?;
        best = best.max(relaxed.least - price * room as f64);
        match relaxed.held > room {
            true => low = price,
            false => high = price,
        }
    }
    // Times are whole.
    let bound = (best - 1e-6 * best.abs()).ceil().max(0.0) as u64;
    Ok((bound <= cost).then_some(bound))
}
