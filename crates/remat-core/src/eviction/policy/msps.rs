//! Memory saving per second, upside down so that the smallest goes first (Capuchin; DTR section 4.1).

use super::rule::{Evicted, Form, Numerator, Reach, Rule, Summed};

const ANCESTORS: Numerator = Numerator::Evicted(Evicted::all(Reach::Ancestors, Summed::Cost));

pub(super) const RULE: Rule = Rule {
    about: Some("(own cost + cost of evicted ancestors) / size"),
    ..Rule::new(
        ANCESTORS,
        Form::Quotient {
            size: true,
            stale: false,
        },
    )
};
