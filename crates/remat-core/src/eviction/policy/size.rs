//! Largest first (GreedyRemat; DTR section 4.1).

use super::rule::{Form, Numerator, Rule};

pub(super) const RULE: Rule = Rule {
    about: Some("largest first"),
    ..Rule::new(
        Numerator::One,
        Form::Quotient {
            size: true,
            stale: false,
        },
    )
};
