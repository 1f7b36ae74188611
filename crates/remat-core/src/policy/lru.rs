//! Least recently used (DTR section 4.1).

use super::{Form, Numerator, Rule};

pub(super) const RULE: Rule = Rule {
    numerator: Numerator::One,
    form: Form::LastAccess,
};
