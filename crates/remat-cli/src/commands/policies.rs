//! `remat policies`.

use crate::failure::Failure;
use crate::table;
use remat_core::{CostTerm, Policy, Price};
use remat_sim::Eviction;

pub(crate) fn run() -> Result<(), Failure> {
    let rows: Vec<_> = Eviction::names()
        .map(|name| (name.to_owned(), describe(name)))
        .collect();
    table::print(&rows)
}

fn describe(name: &str) -> String {
    match name.parse() {
        Ok(Eviction::Online(policy)) if policy == Policy::default() => {
            format!("{} (default)", explain(policy))
        }
        Ok(Eviction::Online(policy)) => explain(policy),
        Ok(Eviction::Selective) => SELECTIVE.into(),
        Err(_) => String::new(),
    }
}

const SELECTIVE: &str =
    "attention between its two products, always, and nothing else (simulated only; transformers)";

fn numerator(cost: CostTerm) -> &'static str {
    match cost {
        CostTerm::Exact => "cost of recomputing it and its evicted neighbourhood",
        CostTerm::Eq => "cost of recomputing it and its evicted component",
        CostTerm::Ancestors => "cost of recomputing it and its evicted ancestors",
        CostTerm::Local => "cost of its own op",
        CostTerm::No => "1",
    }
}

fn explain(policy: Policy) -> String {
    match policy {
        Policy::Dtr { cost, size, stale } => {
            let cost = numerator(cost);
            let divisors = match (size, stale) {
                (true, true) => " / (size * staleness)",
                (true, false) => " / size",
                (false, true) => " / staleness",
                (false, false) => "",
            };
            format!("{cost}{divisors}")
        }
        Policy::Coop { cost, price } => format!(
            "neighbours in the arena, of which the sum of ({} / staleness){} is least",
            numerator(cost),
            match price {
                Price::Sum => "",
                Price::PerByte => " / bytes made free",
            }
        ),
        Policy::Dte { cost } => format!(
            "{} / ((size + free bytes beside it in the arena) * staleness)",
            numerator(cost)
        ),
        Policy::Lru => "least recently used first".into(),
        Policy::Size => "largest first".into(),
        Policy::Msps => "(own cost + cost of evicted ancestors) / size".into(),
        Policy::Random => "any, by a seeded draw".into(),
        Policy::EStar => "number of storages in the evicted neighbourhood (for analysis)".into(),
    }
}
