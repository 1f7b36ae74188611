//! `remat policies`.

use crate::failure::Failure;
use crate::table;
use remat_core::Policy;
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
            format!("{} (default)", policy.formula())
        }
        Ok(Eviction::Online(policy)) => policy.formula(),
        Ok(Eviction::Selective) => SELECTIVE.into(),
        Err(_) => String::new(),
    }
}

const SELECTIVE: &str =
    "attention between its two products, always, and nothing else (simulated only; transformers)";
