//! Arguments of `remat plan chain`.

use clap::Args;
use remat_core::Bytes;
use remat_plan::chain::{Resolution, Strategy};
use std::path::PathBuf;

/// Arguments of `remat plan chain`.
#[derive(Debug, Args)]
#[command(after_help = "\
CHAIN.json:
  {\"input_bytes\": 1048576, \"stages\": [
    {\"name\": \"conv1\", \"forward_time\": 1.6, \"backward_time\": 3.05, \"activation_bytes\": 4194304,
     \"saved_bytes\": 9437184, \"gradient_bytes\": 4194304, \"forward_overhead_bytes\": 0,
     \"backward_overhead_bytes\": 2097152}, ...]}
  Times are in any unit. saved_bytes is all that backward needs of a stage, its output included, its input not.
  gradient_bytes is that of the output (as many as activation_bytes if not given; \"input_gradient_bytes\" beside
  input_bytes: 0 where the input needs none), overheads are 0 if not given.
  Beyond the paper, where known: saving_overhead_bytes (forward overhead where the saved set is kept, if that
  differs), released_bytes (of the saved set, what this stage's own backward does not read: it is gone by then),
  parameter_gradient_bytes (what backward leaves behind for good).

Examples:
  remat plan chain net.json --budget 6GiB
  remat plan chain net.json --budget 6GiB --strategy persistent,revolve,periodic     compare
  remat plan chain net.json --budget 6GiB --slots exact                              to the byte; for short chains
  remat plan chain net.json --curve --json > curve.jsonl                             all budgets at once
  remat plan chain net.json --budget 6GiB --json | jq -c .sequence")]
pub(crate) struct PlanChain {
    /// The chain, `-` for standard input.
    #[arg(value_name = "CHAIN")]
    pub(crate) chain: PathBuf,
    /// Memory for activations, gradients of activations and workspace, as 6GiB or 512MB. With --curve the largest
    /// budget; if not given, what keeping everything takes.
    #[arg(
        long,
        value_name = "BYTES",
        value_parser = remat_trace::parse_bytes,
        allow_hyphen_values = true,
        required_unless_present = "curve"
    )]
    pub(crate) budget: Option<Bytes>,
    /// How to plan; several are compared. If not given: persistent; with --curve also all others that the
    /// number of stages allows (revolve up to 400 stages, floating 100, free 70).
    #[arg(long = "strategy", value_name = "S", value_delimiter = ',')]
    pub(crate) strategies: Vec<Strategy>,
    /// Parts that memory is counted in, or `exact` for bytes. Plans never exceed the budget; more slots find better
    /// ones.
    #[arg(long, value_name = "N|exact", default_value_t)]
    pub(crate) slots: Resolution,
    /// Makespan against memory for all budgets at once; the first point of each strategy is its smallest feasible
    /// budget.
    #[arg(long)]
    pub(crate) curve: bool,
    /// One line of JSON a plan, or a point of the curve, in place of tables; sizes in bytes, times in the chain's
    /// unit.
    #[arg(long)]
    pub(crate) json: bool,
}
