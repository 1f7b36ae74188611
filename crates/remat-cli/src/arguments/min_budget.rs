//! Arguments of `remat min-budget`.

use super::replays::Replays;
use clap::Args;
use remat_core::{Bytes, Policy};
use remat_sim::Eviction;

/// Arguments of `remat min-budget`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  remat min-budget step.trace.zst --policy dtr-eq
  remat min-budget *.log --policy coop,dte,dtr --pool arena
  remat min-budget step.trace.zst --policy coop --pool arena --json | jq .min_budget

With --json each log and policy is a line: sizes in bytes; min_budget is null if not even four times the memory
without a limit does, unmet is the largest budget known not to do.")]
pub(crate) struct MinBudget {
    /// Eviction policies, by name (see `remat policies`).
    #[arg(
        long = "policy",
        value_name = "P",
        value_delimiter = ',',
        default_values_t = [Eviction::Online(Policy::default())]
    )]
    pub(crate) policies: Vec<Eviction>,
    /// How far the budget told may be above one that does not do, as 1MiB; if not given, a 4096th of the memory
    /// without a limit.
    #[arg(long, value_name = "BYTES", value_parser = remat_trace::parse_bytes, allow_hyphen_values = true)]
    pub(crate) within: Option<Bytes>,
    #[command(flatten)]
    pub(crate) replays: Replays,
    /// One line of JSON a log and policy in place of tables.
    #[arg(long)]
    pub(crate) json: bool,
}
