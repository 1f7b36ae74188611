//! Least recently used (DTR section 4.1).

use super::rule::{Form, Numerator, Rule};

pub(super) const RULE: Rule = Rule {
    about: Some("least recently used first"),
    ..Rule::new(Numerator::One, Form::LastAccess)
};
