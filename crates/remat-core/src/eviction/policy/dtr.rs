//! The DTR heuristic and its ablations (appendix C.3 and D.1).

use super::rule::{Discounts, Evicted, Form, Numerator, Reach, Rule, Summed};

/// Own cost and that of the exact evicted neighbourhood `e*`.
pub(super) const EXACT: Numerator =
    Numerator::Evicted(Evicted::all(Reach::Neighbourhood, Summed::Cost));

/// Own cost and that of the adjacent union-find components.
pub(super) const EQ: Numerator = Numerator::Components;

/// Own cost and that of the evicted ancestors, of which a walk looks at a few hundred (bounded work). A storage without
/// references counts less: it is there to recompute others, and a replay brings back more of that kind than will be
/// asked for again. It counts for more while one of those others is missing. The bound is the number that took least
/// time (`cargo run --release -p remat-sim --example coop`).
pub(super) const ANCESTORS: Numerator = Numerator::Evicted(Evicted {
    limit: 256,
    bound: Some(16),
    unreferenced: Some(Discounts {
        while_needed: 8,
        otherwise: 32,
    }),
    ..Evicted::all(Reach::Ancestors, Summed::Cost)
});

/// Own cost.
pub(super) const LOCAL: Numerator = Numerator::Cost;

/// No cost term.
pub(super) const NO: Numerator = Numerator::One;

/// Whether a factor stands in the denominator.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Factor {
    Kept,
    Ablated,
}

pub(super) const fn rule(cost: Numerator, size: Factor, staleness: Factor) -> Rule {
    let form = Form::Quotient {
        size: matches!(size, Factor::Kept),
        stale: matches!(staleness, Factor::Kept),
    };
    Rule::new(cost, form)
}
