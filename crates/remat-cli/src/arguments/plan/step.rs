//! Arguments of `remat plan step`.

use crate::arguments::number::{positive, whole};
use crate::arguments::pool::alignment;
use crate::arguments::ratios::ratio;
use clap::Args;
use remat_core::{Alignment, Bytes};
use std::path::PathBuf;

/// Arguments of `remat plan step`.
#[derive(Debug, Args)]
#[command(after_help = "\
PLAN.json, as --out writes it:
  {\"remat-step-plan\": 1, \"budget_bytes\": .., \"peak_bytes\": .., \"cost_ns\": .., \"recompute_ns\": ..,
   \"bound_ns\": .., \"seed\": .., \"iterations\": .., \"ops\": .., \"storages\": ..,
   \"steps\": [[\"run\", 0], [\"run\", 1], [\"free\", 0], [\"run\", 0], ..]}
  Ops are the recording's constants and ops, numbered from 0 in their order; storages are their
  results that are no views. [\"run\", 3, \"in place\"] runs an op again that writes in place, and takes
  the old block; [\"run\", 3] would write into a copy. The first run always takes the old block.
  With --addresses: \"addresses\": {\"bytes\": .., \"alignment\": 64, \"offsets\": [0, 4096, ..]}, an offset for
  each block in the order in which the steps take them. A run takes one for each result that is no
  view and takes no old block, and then one for its workspace; none where there are no bytes. A result
  that is in memory already has a second block while the op runs.

Examples:
  remat plan step step.trace.zst --ratio 0.7
  remat plan step step.trace.zst --budget 6GiB --seconds 60 --out plan.json
  remat plan step step.trace.zst --ratio 0.7 --iterations 3    the same plan each time
  remat plan step gpt.trace.zst --curve --seconds 1            the price of eight budgets
  remat plan step step.trace.zst --ratio 0.7 --addresses       in an arena, too
  remat plan step step.trace.zst --ratio 0.7 --json | jq .overhead

With --json each budget is a line: sizes in bytes, times in nanoseconds. overhead is all runs over
first runs, as in `remat simulate`; gap is how far all runs are above bound_ns, as a part of it.
Every schedule within the budget whose first runs are in program order takes at least bound_ns.
online is the best of the policies, null where none fits. Where no plan was found, peak_bytes and
all that follows from the plan are null.")]
pub(crate) struct PlanStep {
    /// The recorded step: a trace or DTR log, `-` for standard input.
    #[arg(value_name = "LOG")]
    pub(crate) log: PathBuf,
    /// Bytes of the first device, constants included, as 6GiB or 512MB.
    #[arg(
        long,
        value_name = "BYTES",
        value_parser = remat_trace::parse_bytes,
        allow_hyphen_values = true,
        required_unless_present_any = ["ratios", "curve"],
        conflicts_with_all = ["ratios", "curve"]
    )]
    pub(crate) budget: Option<Bytes>,
    /// Budgets as parts of what the step needs without a limit; planned from the largest to the smallest.
    #[arg(
        long = "ratio",
        value_name = "R",
        value_delimiter = ',',
        value_parser = ratio,
        allow_negative_numbers = true
    )]
    pub(crate) ratios: Vec<f64>,
    /// Time against memory: plans for the ratios 0.9 to 0.2, or those of --ratio.
    #[arg(long)]
    pub(crate) curve: bool,
    /// Seconds of search for each budget. Ctrl-C ends the search with the best plan so far.
    #[arg(long, value_name = "N", value_parser = seconds, allow_negative_numbers = true, default_value = "10")]
    pub(crate) seconds: f64,
    /// Rounds of search for each budget, in place of seconds: the plan depends on the seed alone.
    #[arg(long, value_name = "N", value_parser = whole, allow_negative_numbers = true, conflicts_with = "seconds")]
    pub(crate) iterations: Option<u64>,
    /// Seed of the search.
    #[arg(long, value_name = "N", value_parser = whole, allow_negative_numbers = true, default_value_t = 0)]
    pub(crate) seed: u64,
    /// Places the blocks of the plan in an arena of as few bytes as is found, at multiples of so many bytes.
    #[arg(
        long,
        value_name = "ALIGNMENT",
        value_parser = alignment,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "64"
    )]
    pub(crate) addresses: Option<Alignment>,
    /// The file to write the plan to; of one budget only. Until it is complete it is called PLAN.partial. `-` is
    /// standard output; what is told of the plan then goes to standard error.
    #[arg(long, value_name = "PLAN", conflicts_with = "curve")]
    pub(crate) out: Option<PathBuf>,
    /// One line of JSON a budget in place of tables.
    #[arg(long)]
    pub(crate) json: bool,
}

/// As much as a [`Duration`](std::time::Duration) holds by far.
const LONGEST: f64 = 1e9;

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = positive(text).filter(|&seconds| seconds <= LONGEST);
    seconds.ok_or_else(|| {
        "the time is a number of seconds above 0, at most 1e9, for example 10".into()
    })
}
