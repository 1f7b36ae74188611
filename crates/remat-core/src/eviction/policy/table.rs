//! Eviction policies: small rules that score a storage from its metadata; the smallest score goes first.
//!
//! A policy is one file that gives a [`Rule`], and one line in [`TABLE`] (the DTR family has a line per ablation).
//! What finds the smallest score is in `search/` and knows no policy by name.

use super::{coop, dte, dtr, e_star, lru, msps, random, size};

use std::fmt;
use std::str::FromStr;

/// Which compute cost a score of the DTR family counts (DTR appendix C.2 and D.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CostTerm {
    /// The storage's own cost and that of its exact evicted neighbourhood `e*`.
    Exact,
    /// The storage's own cost and that of the adjacent union-find components.
    Eq,
    /// The storage's own cost and that of its evicted ancestors, of which a walk looks at 256 storages at most: what
    /// bringing it back would take.
    Ancestors,
    /// The storage's own cost.
    Local,
    /// No cost term.
    No,
}

/// What windows of storages are compared by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Price {
    /// The sum of their costs (Coop equation 1).
    Sum,
    /// The sum of their costs over the bytes that they make free: what the next allocations will use counts too.
    PerByte,
}

/// An eviction policy, by name.
///
/// ```
/// use remat_core::Policy;
///
/// let policy: Policy = "dtr-eq-nostale".parse().unwrap();
/// assert_eq!(policy.to_string(), "dtr-eq-nostale");
/// assert_eq!("dtr-eq".parse(), Ok(Policy::default()));
/// assert!("dtr-eq-nothing".parse::<Policy>().unwrap_err().to_string().contains("msps"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// `cost / (size * staleness)` with any term ablated (DTR appendix D): `dtr`, `dtr-eq`, `dtr-anc`, `dtr-local`,
    /// `dtr-no` and their `-nosize` and `-nostale` forms.
    Dtr {
        /// The numerator.
        cost: CostTerm,
        /// Whether the score is divided by the size in bytes.
        size: bool,
        /// Whether the score is divided by the time since the last access.
        stale: bool,
    },
    /// The window of neighbouring storages that costs least, at `cost / staleness` each (Coop section 3.3); needs an
    /// [arena](crate::Memory::Arena). Among bytes that are only counted, one storage at a time.
    Coop {
        /// The cost of a storage.
        cost: CostTerm,
        /// What the costs of windows are compared by.
        price: Price,
    },
    /// DTR's score with the free bytes beside a storage counted into its size (MegTaiChi, Hu et al. 2022); needs an
    /// [arena](crate::Memory::Arena). Among bytes that are only counted, DTR.
    Dte {
        /// The numerator.
        cost: CostTerm,
    },
    /// Least recently used first.
    Lru,
    /// Largest first.
    Size,
    /// `(cost + evicted ancestors) / size` (Capuchin's MSPS).
    Msps,
    /// Uniform, seeded.
    Random,
    /// `|e*|`, the analysis-only heuristic of DTR theorem 3.1.
    EStar,
}

impl Default for Policy {
    fn default() -> Self {
        Policy::Dtr {
            cost: CostTerm::Eq,
            size: true,
            stale: true,
        }
    }
}

/// The part of a score that stays the same while a storage's surroundings do; it is cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Numerator {
    /// 1.
    One,
    /// The storage's own cost.
    Cost,
    /// Own cost and the worth of the adjacent components.
    Components,
    /// Own cost and that of `e*`.
    Neighbourhood,
    /// Own cost and that of the evicted ancestors.
    Ancestors,
    /// Own cost and that of evicted ancestors until a few hundred storages were looked at (bounded work); less where the
    /// program let the storage go.
    NearAncestors,
    /// Number of storages in `e*`.
    Count,
}

impl Numerator {
    /// Whether the score depends on the evicted neighbourhood however far it goes.
    pub(crate) fn is_whole(self) -> bool {
        self.is_exact() && self != Numerator::NearAncestors
    }

    /// Whether the score depends on the exact evicted neighbourhood.
    pub(crate) fn is_exact(self) -> bool {
        matches!(
            self,
            Numerator::Neighbourhood
                | Numerator::Ancestors
                | Numerator::NearAncestors
                | Numerator::Count
        )
    }
}

/// How a numerator becomes a score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// `numerator / (size * staleness)`, factors as chosen; infinite when the denominator is 0.
    Quotient {
        /// Divide by bytes.
        size: bool,
        /// Divide by staleness.
        stale: bool,
    },
    /// The last access itself.
    LastAccess,
    /// A fresh draw a candidate.
    Draw,
}

impl Form {
    /// The same with every storage equally stale.
    pub(crate) fn without_staleness(self) -> Form {
        match self {
            Form::Quotient { size, .. } => Form::Quotient { size, stale: false },
            other => other,
        }
    }
}

/// What a policy's file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) numerator: Numerator,
    pub(crate) form: Form,
}

const fn ablation(cost: CostTerm, size: bool, stale: bool) -> Policy {
    Policy::Dtr { cost, size, stale }
}

const fn coop(cost: CostTerm, price: Price) -> Policy {
    Policy::Coop { cost, price }
}

/// Every policy by name.
const TABLE: &[(&str, Policy)] = &[
    ("dtr", ablation(CostTerm::Exact, true, true)),
    ("dtr-nosize", ablation(CostTerm::Exact, false, true)),
    ("dtr-nostale", ablation(CostTerm::Exact, true, false)),
    (
        "dtr-nosize-nostale",
        ablation(CostTerm::Exact, false, false),
    ),
    ("dtr-eq", ablation(CostTerm::Eq, true, true)),
    ("dtr-eq-nosize", ablation(CostTerm::Eq, false, true)),
    ("dtr-eq-nostale", ablation(CostTerm::Eq, true, false)),
    (
        "dtr-eq-nosize-nostale",
        ablation(CostTerm::Eq, false, false),
    ),
    ("dtr-anc", ablation(CostTerm::Ancestors, true, true)),
    ("dtr-anc-nosize", ablation(CostTerm::Ancestors, false, true)),
    (
        "dtr-anc-nostale",
        ablation(CostTerm::Ancestors, true, false),
    ),
    (
        "dtr-anc-nosize-nostale",
        ablation(CostTerm::Ancestors, false, false),
    ),
    ("dtr-local", ablation(CostTerm::Local, true, true)),
    ("dtr-local-nosize", ablation(CostTerm::Local, false, true)),
    ("dtr-local-nostale", ablation(CostTerm::Local, true, false)),
    (
        "dtr-local-nosize-nostale",
        ablation(CostTerm::Local, false, false),
    ),
    ("dtr-no", ablation(CostTerm::No, true, true)),
    ("dtr-no-nosize", ablation(CostTerm::No, false, true)),
    ("dtr-no-nostale", ablation(CostTerm::No, true, false)),
    (
        "dtr-no-nosize-nostale",
        ablation(CostTerm::No, false, false),
    ),
    ("coop", coop(CostTerm::Ancestors, Price::PerByte)),
    ("coop-eq", coop(CostTerm::Eq, Price::PerByte)),
    ("coop-exact", coop(CostTerm::Exact, Price::PerByte)),
    ("coop-sum", coop(CostTerm::Ancestors, Price::Sum)),
    (
        "dte",
        Policy::Dte {
            cost: CostTerm::Exact,
        },
    ),
    ("dte-eq", Policy::Dte { cost: CostTerm::Eq }),
    ("lru", Policy::Lru),
    ("size", Policy::Size),
    ("msps", Policy::Msps),
    ("random", Policy::Random),
    ("e-star", Policy::EStar),
];

/// The names of all policies, each of which [`Policy`] parses.
pub fn names() -> impl Iterator<Item = &'static str> {
    TABLE.iter().map(|(name, _)| *name)
}

impl Policy {
    /// Whether it makes sense in an arena only.
    pub fn needs_arena(self) -> bool {
        matches!(self, Policy::Coop { .. } | Policy::Dte { .. })
    }

    pub(crate) fn weighs_gaps(self) -> bool {
        matches!(self, Policy::Dte { .. })
    }

    pub(crate) fn rule(self) -> Rule {
        match self {
            Policy::Dtr { cost, size, stale } => dtr::rule(cost, size, stale),
            Policy::Coop { cost, .. } => coop::rule(cost),
            Policy::Dte { cost } => dte::rule(cost),
            Policy::Lru => lru::RULE,
            Policy::Size => size::RULE,
            Policy::Msps => msps::RULE,
            Policy::Random => random::RULE,
            Policy::EStar => e_star::RULE,
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match TABLE.iter().find(|(_, policy)| policy == self) {
            Some((name, _)) => f.write_str(name),
            None => write!(f, "{self:?}"),
        }
    }
}

impl FromStr for Policy {
    type Err = UnknownPolicy;
    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        match TABLE.iter().find(|(known, _)| *known == name) {
            Some((_, policy)) => Ok(*policy),
            None => Err(UnknownPolicy(name.to_owned())),
        }
    }
}

/// An unknown policy name; the message lists the known ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPolicy(pub String);

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown policy '{}'; known are", self.0)?;
        for (index, name) in names().enumerate() {
            write!(f, "{}{name}", if index == 0 { " " } else { ", " })?;
        }
        Ok(())
    }
}

impl std::error::Error for UnknownPolicy {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_parsed_and_printed_back() {
        for name in names() {
            assert_eq!(
                name.parse::<Policy>().map(|policy| policy.to_string()),
                Ok(name.to_owned())
            );
        }
        assert_eq!(names().count(), 31);
    }

    #[test]
    fn an_unknown_name_is_answered_with_all_names() {
        let message = "belady"
            .parse::<Policy>()
            .map_err(|unknown| unknown.to_string());
        let Err(message) = message else {
            panic!("parsed")
        };
        assert!(names().all(|name| message.contains(name)), "{message}");
    }
}
