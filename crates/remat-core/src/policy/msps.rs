//! Memory saving per second, upside down so that the smallest goes first (Capuchin; DTR section 4.1).

use super::{Form, Numerator, Rule};

pub(super) const RULE: Rule = Rule {
    numerator: Numerator::Ancestors,
    form: Form::Quotient {
        size: true,
        stale: false,
    },
};
