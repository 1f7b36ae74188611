//! Largest first (GreedyRemat; DTR section 4.1).

use super::table::{Form, Numerator, Rule};

pub(crate) const RULE: Rule = Rule {
    numerator: Numerator::One,
    form: Form::Quotient {
        size: true,
        stale: false,
    },
};
