//! The number of evicted neighbours, the heuristic of DTR theorem 3.1.

use super::table::{Form, Numerator, Rule};

pub(crate) const RULE: Rule = Rule {
    numerator: Numerator::Count,
    form: Form::Quotient {
        size: false,
        stale: false,
    },
};
