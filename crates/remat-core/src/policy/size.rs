//! Largest first (GreedyRemat; DTR section 4.1).

use super::{Form, Numerator, Rule};

pub(super) const RULE: Rule = Rule {
    numerator: Numerator::One,
    form: Form::Quotient {
        size: true,
        stale: false,
    },
};
