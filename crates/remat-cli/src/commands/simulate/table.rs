//! Runs as a table.

use super::case::Case;
use crate::log::Log;
use crate::table;
use crate::terminal::plain;
use remat_sim::{Budget, Outcome, Status};

/// The log without a limit, and the names of the columns.
pub(super) fn heading(log: &Log) -> String {
    let base = &log.base;
    let width = table::POLICY;
    format!(
        "\n{}: {} and {} without a limit; constants {}, the largest op {}\n\
         {:width$}  ratio       budget  status  overhead         peak  evictions  replays\n",
        plain(&log.name),
        base.memory,
        table::duration(base.cost.0),
        base.constants,
        base.bottleneck,
        "policy",
    )
}

/// One run.
pub(super) fn row(log: &Log, case: &Case<'_>, outcome: &Outcome) -> String {
    let ratio = match case.setting.budget {
        Budget::Ratio(ratio) => ratio,
        Budget::Bytes(bytes) => bytes.0 as f64 / log.base.memory.0.max(1) as f64,
    };
    let overhead = match outcome.status {
        Status::Ok => format!("{:.3}", outcome.overhead(&log.base)),
        Status::Oom | Status::Thrash => "-".into(),
    };
    let counters = &outcome.counters;
    format!(
        "{:width$}  {:>5}  {:>11}  {:6}  {overhead:>8}  {:>11}  {:>9}  {:>7}\n",
        case.policy,
        format!("{ratio:.3}"),
        outcome.budget.to_string(),
        outcome.status,
        outcome.peak.to_string(),
        counters.evictions,
        counters.replays,
        width = table::POLICY,
    )
}
