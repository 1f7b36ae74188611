//! Uniform choice, from a seed (DTR section 4.1).

use super::rule::{Form, Numerator, Rule};

pub(super) const RULE: Rule = Rule {
    about: Some("any, by a seeded draw"),
    ..Rule::new(Numerator::One, Form::Draw)
};
