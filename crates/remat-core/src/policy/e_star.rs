//! The number of evicted neighbours, the heuristic of DTR theorem 3.1.

use super::{Form, Numerator, Rule};

pub(super) const RULE: Rule = Rule {
    numerator: Numerator::Count,
    form: Form::Quotient {
        size: false,
        stale: false,
    },
};
