//! Arguments of `remat figures`.

use super::jobs::Jobs;
use super::number::{positive, whole};
use super::ratios::Ratios;
use clap::Args;
use remat_plan::chain::Strategy;
use std::path::PathBuf;

/// Arguments of `remat figures`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  remat figures out --from step.trace.zst                 then open out/index.html
  remat figures out --from resnet.log unet.log --jobs 4   two logs, four runs at a time
  remat figures out --from *.log --ratio 0.2,0.3,0.4      only these budgets
  remat figures out --from net.json                       a chain: throughput against memory
  remat figures out --from *.json --strategy persistent,floating,periodic
  remat figures out --growth                              planning time against length: a minute or two

Files of recorded steps: overhead, planned, ablation-exact, ablation-eq, ablation-local, ablation-no,
deallocation, accesses, evaluations, arena-overhead, arena-latency, arena-fragmentation,
linear-policies, linear-budgets, residency, adversary;
of chains: chains; with --growth: growth. Each as .svg and .csv; and index.html.
In the CSVs sizes are bytes and times nanoseconds; those of the theorems count tensors and ops,
that of chains has their own unit of time, that of growth seconds.")]
pub(crate) struct Figures {
    /// Folder to write into; made if it is not there.
    #[arg(value_name = "OUT")]
    pub(crate) out: PathBuf,
    /// Traces and DTR logs to replay, and chains to plan; `-` is a trace or log on standard input.
    #[arg(long = "from", required_unless_present = "growth", num_args = 1.., value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) ratios: Ratios,
    /// Rounds of search for each plan of a recorded step (see `remat plan step`): more take longer, and cost less.
    #[arg(long, value_name = "N", value_parser = whole, allow_negative_numbers = true, default_value_t = 20)]
    pub(crate) plan_rounds: u64,
    #[command(flatten)]
    pub(crate) jobs: Jobs,
    /// How chains are planned (see `remat plan chain`). If not given: persistent and revolve up to 400 stages,
    /// floating up to 100, free up to 70, and all others.
    #[arg(long = "strategy", value_name = "S", value_delimiter = ',')]
    pub(crate) strategies: Vec<Strategy>,
    /// Time persistent and floating planning on synthetic chains of rising length, at most so many seconds each (60 if
    /// not given).
    ///
    /// Timed is one plan, on one core: tables and the sequence read off them, in 500 slots, for budgets of a third, a
    /// half and two thirds of what keeping everything takes.
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "60",
        value_parser = seconds
    )]
    pub(crate) growth: Option<f64>,
}

fn seconds(text: &str) -> Result<f64, String> {
    positive(text).ok_or_else(|| "the limit is a number of seconds above 0, for example 60".into())
}
