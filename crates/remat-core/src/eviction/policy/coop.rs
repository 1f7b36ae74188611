//! Windows of storages (Coop section 3.3): the score of one of them has no size, since the window has it.

use super::dtr::{self, Factor};
use super::rule::{Numerator, Price, Rule};

pub(super) const fn rule(cost: Numerator, price: Price) -> Rule {
    Rule {
        window: Some(price),
        ..dtr::rule(cost, Factor::Ablated, Factor::Kept)
    }
}
