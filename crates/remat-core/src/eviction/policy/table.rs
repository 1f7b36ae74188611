//! The policies by name.

use super::dtr::{self, Factor};
use super::rule::{Form, Gaps, Price, Rule};
use super::{coop, dte, e_star, formula, lru, msps, random, size};
use Factor::{Ablated, Kept};
use std::fmt;
use std::str::FromStr;

/// An eviction policy: a rule that scores each storage; the smallest score goes first. Its name says which.
///
/// | name | score |
/// | --- | --- |
/// | `dtr` | `cost / (size * staleness)`, the cost that of the storage and its exact evicted neighbourhood `e*` |
/// | `dtr-eq` | the same with the cost of the adjacent union-find components for that of `e*` |
/// | `dtr-anc` | the cost that of the evicted ancestors, of which a walk looks at 256 storages at most |
/// | `dtr-local`, `dtr-no` | the storage's own cost, no cost |
/// | `-nosize`, `-nostale` | the same without the size, without the staleness (DTR appendix D) |
/// | `coop` and its forms | the window of neighbours in an [arena](crate::Memory::Arena) that costs least (Coop 3.3) |
/// | `dte`, `dte-eq` | DTR's score with the free bytes beside a storage in its size (MegTaiChi, Hu et al. 2022) |
/// | `lru`, `size` | least recently used first, largest first |
/// | `msps` | `(cost + evicted ancestors) / size` (Capuchin) |
/// | `random` | uniform, seeded |
/// | `e-star` | `|e*|`, the analysis-only heuristic of DTR theorem 3.1 |
///
/// Among bytes that are only counted, `coop` evicts one storage at a time, and `dte` is `dtr`.
///
/// ```
/// use remat_core::Policy;
///
/// let policy: Policy = "dtr-eq-nostale".parse().unwrap();
/// assert_eq!(policy.to_string(), "dtr-eq-nostale");
/// assert_eq!("dtr-eq".parse(), Ok(Policy::default()));
/// assert!("dtr-eq-nothing".parse::<Policy>().unwrap_err().to_string().contains("msps"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    row: u8,
}

struct Row {
    name: &'static str,
    rule: Rule,
}

const fn row(name: &'static str, rule: Rule) -> Row {
    Row { name, rule }
}

/// Every policy: its name, and the rule that its file gives.
#[rustfmt::skip]
const TABLE: &[Row] = &[
    row("dtr", dtr::rule(dtr::EXACT, Kept, Kept)),
    row("dtr-nosize", dtr::rule(dtr::EXACT, Ablated, Kept)),
    row("dtr-nostale", dtr::rule(dtr::EXACT, Kept, Ablated)),
    row("dtr-nosize-nostale", dtr::rule(dtr::EXACT, Ablated, Ablated)),
    row("dtr-eq", dtr::rule(dtr::EQ, Kept, Kept)),
    row("dtr-eq-nosize", dtr::rule(dtr::EQ, Ablated, Kept)),
    row("dtr-eq-nostale", dtr::rule(dtr::EQ, Kept, Ablated)),
    row("dtr-eq-nosize-nostale", dtr::rule(dtr::EQ, Ablated, Ablated)),
    row("dtr-anc", dtr::rule(dtr::ANCESTORS, Kept, Kept)),
    row("dtr-anc-nosize", dtr::rule(dtr::ANCESTORS, Ablated, Kept)),
    row("dtr-anc-nostale", dtr::rule(dtr::ANCESTORS, Kept, Ablated)),
    row("dtr-anc-nosize-nostale", dtr::rule(dtr::ANCESTORS, Ablated, Ablated)),
    row("dtr-local", dtr::rule(dtr::LOCAL, Kept, Kept)),
    row("dtr-local-nosize", dtr::rule(dtr::LOCAL, Ablated, Kept)),
    row("dtr-local-nostale", dtr::rule(dtr::LOCAL, Kept, Ablated)),
    row("dtr-local-nosize-nostale", dtr::rule(dtr::LOCAL, Ablated, Ablated)),
    row("dtr-no", dtr::rule(dtr::NO, Kept, Kept)),
    row("dtr-no-nosize", dtr::rule(dtr::NO, Ablated, Kept)),
    row("dtr-no-nostale", dtr::rule(dtr::NO, Kept, Ablated)),
    row("dtr-no-nosize-nostale", dtr::rule(dtr::NO, Ablated, Ablated)),
    row("coop", coop::rule(dtr::ANCESTORS, Price::PerByte)),
    row("coop-eq", coop::rule(dtr::EQ, Price::PerByte)),
    row("coop-exact", coop::rule(dtr::EXACT, Price::PerByte)),
    row("coop-sum", coop::rule(dtr::ANCESTORS, Price::Sum)),
    row("dte", dte::rule(dtr::EXACT)),
    row("dte-eq", dte::rule(dtr::EQ)),
    row("lru", lru::RULE),
    row("size", size::RULE),
    row("msps", msps::RULE),
    row("random", random::RULE),
    row("e-star", e_star::RULE),
];

/// The names of all policies, each of which [`Policy`] parses.
pub fn names() -> impl Iterator<Item = &'static str> {
    TABLE.iter().map(|row| row.name)
}

impl Policy {
    /// `dtr-eq`.
    const DTR_EQ: Policy = Policy::named("dtr-eq");
    /// `lru`: least recently used first (DTR section 4.1).
    pub const LRU: Policy = Policy::named("lru");
    /// `e-star`: the fewest evicted neighbours first (DTR theorem 3.1).
    pub const E_STAR: Policy = Policy::named("e-star");

    /// The policy of a name that stands in the table; any other does not compile.
    const fn named(name: &str) -> Policy {
        let mut row = 0;
        while !same(TABLE[row].name.as_bytes(), name.as_bytes()) {
            row += 1;
        }
        Policy { row: row as u8 }
    }

    /// Its name, which [`Policy`] parses.
    pub fn name(self) -> &'static str {
        TABLE[usize::from(self.row)].name
    }

    /// Whether it makes sense in an arena only.
    pub fn needs_arena(self) -> bool {
        let rule = self.rule();
        rule.window.is_some() || rule.gaps == Gaps::Counted
    }

    /// Whether storages evicted together are neighbours in the arena (Coop section 3.3).
    pub fn evicts_windows(self) -> bool {
        self.rule().window.is_some()
    }

    /// The policy that scores storages alike and evicts them one by one; itself if it does so.
    pub fn without_windows(self) -> Policy {
        if !self.evicts_windows() {
            return self;
        }
        let alone = Rule {
            window: None,
            form: Form::Quotient {
                size: true,
                stale: true,
            },
            ..self.rule()
        };
        let row = TABLE.iter().position(|row| row.rule == alone);
        row.map_or(self, |row| Policy { row: row as u8 })
    }

    /// Its score, as a formula or in words.
    pub fn formula(self) -> String {
        formula::formula(&self.rule())
    }

    pub(crate) fn rule(self) -> Rule {
        TABLE[usize::from(self.row)].rule
    }
}

const fn same(a: &[u8], b: &[u8]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

impl Default for Policy {
    /// `dtr-eq`.
    fn default() -> Self {
        Policy::DTR_EQ
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Policy {
    type Err = UnknownPolicy;
    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        let row = TABLE.iter().position(|row| row.name == name);
        row.map(|row| Policy { row: row as u8 })
            .ok_or_else(|| UnknownPolicy(name.to_owned()))
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
    }

    #[test]
    fn coop_without_windows_is_dtr_by_the_same_cost() {
        let alone = |name: &str| name.parse::<Policy>().map(|p| p.without_windows().name());
        let names = ["coop", "coop-sum", "coop-eq", "coop-exact", "dte", "lru"];
        let expected = ["dtr-anc", "dtr-anc", "dtr-eq", "dtr", "dte", "lru"];
        assert_eq!(names.map(alone), expected.map(Ok));
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
