//! Dynamic tensor evicting (MegTaiChi, Hu et al., ICS 2022, without its swapping; Coop section 4.1): DTR's score, in which the size is that
//! of the storage and of the free blocks beside it.

use super::dtr;
use super::table::{CostTerm, Rule};

pub(crate) fn rule(cost: CostTerm) -> Rule {
    dtr::rule(cost, true, true)
}
