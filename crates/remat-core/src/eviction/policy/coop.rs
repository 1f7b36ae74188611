//! Windows of storages (Coop section 3.3): the score of one of them, which has no size since the window has it.

use super::dtr;
use super::table::{CostTerm, Rule};

pub(crate) fn rule(cost: CostTerm) -> Rule {
    dtr::rule(cost, false, true)
}
