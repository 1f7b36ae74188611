//! Arguments of `remat simulate`.

use super::ratios::Ratios;
use super::replays::Replays;
use clap::Args;
use clap::builder::ArgPredicate;
use remat_core::Bytes;
use remat_sim::Eviction;
use std::path::PathBuf;

/// Arguments of `remat simulate`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  remat simulate step.trace.zst                                   six policies, ten budgets
  remat simulate step.trace.zst --policy dtr-eq --budget 6GiB,8GiB   is 6 GiB enough, and at what price?
  remat simulate *.log --policy dtr,lru --ratio 0.3 --dealloc banish
  remat simulate *.log --policy coop,dte,dtr --pool arena         memory with addresses
  remat simulate *.log --policy coop --pool arena --moves 10GB    blocks in the way are copied elsewhere
  remat simulate gpt.trace.zst --policy sar,dtr-eq                attention recomputed by plan; transformers only
  remat simulate step.trace.zst --plan plan.json --policy dtr-eq,dtr-anc   a plan beside policies, in its budget
  remat simulate run.trace.zst --adopted --policy dtr-anc         a recorded run with the plans that it adopted
  remat simulate *.log --json | jq -r '[.log,.policy,.ratio,.overhead]|@tsv'

With --json each run is a line: sizes in bytes, times in nanoseconds. overhead is the clock at the end over the
cost of the step; clock starts at 1 and goes on by the cost of each op run, remat_cost is the part of it
that was recomputed. metadata_accesses counts storages looked at while deciding (DTR appendix D.3).

With --pool arena each line has more. A shortage is a block that was not to be had without evicting. fragmentation is
the part of the arena that is free once such a block was taken, searches the searches for what to evict,
search_ns_mean their wall time for a shortage; unused_evicted_bytes were evicted for a block that does not cover them,
moved_bytes copied elsewhere (--moves). cutoff_budget is the largest budget in which anything is evicted, min_budget
the smallest that does, both to a 4096th of the memory without a limit (see `remat min-budget`).

With --plan the engine runs the step as a plan of `remat plan step --out` says; its row is called plan. The plan has to
be valid for LOG (see `remat verify step`). overhead and peak are then those of the plan, and evictions the drops of
what comes again. The row is `oom` if the engine would have to decide anything for itself. With --pool arena the blocks
lie where the plan has them (`remat plan step --addresses`), in an arena of the size that it names: no search, no
shortage, no move.")]
pub(crate) struct Simulate {
    /// Eviction policies, by name (see `remat policies`); with --plan none, if none is named.
    #[arg(
        long = "policy",
        value_name = "P",
        value_delimiter = ',',
        default_value = "dtr,dtr-eq,dtr-local,lru,size,msps",
        default_value_if("plans", ArgPredicate::IsPresent, None)
    )]
    pub(crate) policies: Vec<Eviction>,
    #[command(flatten)]
    pub(crate) ratios: Ratios,
    /// Budgets in bytes, in place of ratios: 6GiB, 512MB.
    #[arg(
        long = "budget",
        value_name = "BYTES",
        value_delimiter = ',',
        value_parser = remat_trace::parse_bytes, allow_hyphen_values = true,
        conflicts_with = "ratios"
    )]
    pub(crate) budgets: Vec<Bytes>,
    /// Plans of the one LOG, as `remat plan step --out` writes them. Policies then run within their budgets.
    #[arg(
        long = "plan",
        value_name = "PLAN",
        value_delimiter = ',',
        conflicts_with_all = ["ratios", "budgets"]
    )]
    pub(crate) plans: Vec<PathBuf>,
    /// Follow the plans that the recorded run adopted, wherever its steps come as they expect and they fit. The engine
    /// is then set as in training: it forgets lineage that nothing needs, and tries other orders of replay.
    #[arg(long, conflicts_with = "plans")]
    pub(crate) adopted: bool,
    #[command(flatten)]
    pub(crate) replays: Replays,
    /// One line of JSON a run in place of tables.
    #[arg(long)]
    pub(crate) json: bool,
}
