//! Dynamic tensor evicting (MegTaiChi, Hu et al., ICS 2022, without its swapping; Coop section 4.1): DTR's score, in
//! which the size is that of the storage and of the free blocks beside it.

use super::dtr::{self, Factor};
use super::rule::{Gaps, Numerator, Rule};

pub(super) const fn rule(cost: Numerator) -> Rule {
    Rule {
        gaps: Gaps::Counted,
        ..dtr::rule(cost, Factor::Kept, Factor::Kept)
    }
}
