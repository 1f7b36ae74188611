//! The DTR heuristic and its ablations (appendix C.3 and D.1).

use super::table::{CostTerm, Form, Numerator, Rule};

pub(crate) fn rule(cost: CostTerm, size: bool, stale: bool) -> Rule {
    let numerator = match cost {
        CostTerm::Exact => Numerator::Neighbourhood,
        CostTerm::Eq => Numerator::Components,
        CostTerm::Ancestors => Numerator::NearAncestors,
        CostTerm::Local => Numerator::Cost,
        CostTerm::No => Numerator::One,
    };
    Rule {
        numerator,
        form: Form::Quotient { size, stale },
    }
}
