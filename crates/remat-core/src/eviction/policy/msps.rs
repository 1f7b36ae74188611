//! Memory saving per second, upside down so that the smallest goes first (Capuchin; DTR section 4.1).

use super::table::{Form, Numerator, Rule};

pub(crate) const RULE: Rule = Rule {
    numerator: Numerator::Ancestors,
    form: Form::Quotient {
        size: true,
        stale: false,
    },
};
