//! The number of evicted neighbours, the heuristic of DTR theorem 3.1.

use super::rule::{Evicted, Form, Numerator, Reach, Rule, Summed};

const NEIGHBOURS: Numerator =
    Numerator::Evicted(Evicted::all(Reach::Neighbourhood, Summed::Number));

pub(super) const RULE: Rule = Rule {
    about: Some("number of storages in the evicted neighbourhood (for analysis)"),
    ..Rule::new(
        NEIGHBOURS,
        Form::Quotient {
            size: false,
            stale: false,
        },
    )
};
