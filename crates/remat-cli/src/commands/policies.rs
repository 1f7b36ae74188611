//! `remat policies`.

use crate::failure::Failure;
use crate::table;
use remat_sim::Eviction;

pub(crate) fn run() -> Result<(), Failure> {
    let rows: Vec<_> = Eviction::names()
        .map(|name| (name.to_owned(), describe(name)))
        .collect();
    table::print(&rows)
}

/// Policies that are used where none is named.
const DEFAULTS: [(&str, &str); 3] = [
    ("dtr-eq", "default of min-budget"),
    ("dtr-anc", "default in training"),
    ("coop", "default in training in an arena"),
];

fn describe(name: &str) -> String {
    let rule = match name.parse() {
        Ok(Eviction::Online(policy)) => policy.formula(),
        Ok(Eviction::Selective) => SELECTIVE.into(),
        Err(_) => String::new(),
    };
    match DEFAULTS.iter().find(|&&(of, _)| of == name) {
        Some((_, used)) => format!("{rule} ({used})"),
        None => rule,
    }
}

const SELECTIVE: &str =
    "attention between its two products, always, and nothing else (simulated only; transformers)";
