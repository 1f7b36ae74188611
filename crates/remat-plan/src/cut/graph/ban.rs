//! Reasons why a node is not to be recomputed (sections 3.1 and 3.4 of the paper).

use std::fmt;

/// Why a node is not to be recomputed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ban {
    /// Its op is random: it would not come out the same.
    Random,
    /// Its op takes long.
    ComputeBound,
    /// It is a reduction to less than a quarter.
    Reduction,
    /// An op of the backward pass with which it does not fuse reads it, so it would be written and read anyway (lemma
    /// 3.1).
    Unfusible,
    /// It would be in another kernel than the op that read the same value before.
    UsedFarApart,
    /// It is the last of a hundred ops that could all be recomputed at once.
    LongChain,
    /// The caller said so.
    Caller,
}

impl Ban {
    /// Its name in plans.
    pub fn name(self) -> &'static str {
        match self {
            Ban::Random => "random",
            Ban::ComputeBound => "compute-bound",
            Ban::Reduction => "reduction",
            Ban::Unfusible => "unfusible",
            Ban::UsedFarApart => "used far apart",
            Ban::LongChain => "end of a long chain",
            Ban::Caller => "caller",
        }
    }
}

impl fmt::Display for Ban {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
