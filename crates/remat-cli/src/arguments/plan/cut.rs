//! Arguments of `remat plan cut`.

use clap::Args;
use remat_core::Bytes;
use std::path::PathBuf;

/// Arguments of `remat plan cut`.
#[derive(Debug, Args)]
#[command(after_help = "\
GRAPH.json:
  {\"nodes\": [
    {\"name\": \"x\", \"bytes\": 4096},
    {\"name\": \"y\", \"bytes\": 4096, \"inputs\": [\"x\"], \"op\": \"tanh\", \"fusible\": true,
     \"compute_bound\": false, \"random\": false, \"reduction\": false, \"cost\": 1500}, ...],
   \"inputs\": [\"x\"], \"tangents\": [\"g\"], \"forward_outputs\": [\"y\"], \"backward_outputs\": [\"dx\"]}
  cost is in nanoseconds. Left out, flags are false, and numbers 0. Beside these: \"savable\": false for tuples
  (their results are nodes of op \"getitem\") and \"recomputable\": false are wishes; \"view_of\" names the input
  whose memory a node shares; \"group\" is the number of its fusion group; \"workspace\" is what an op takes
  while it runs, in bytes;
  \"heavy\" is true where several kernels would rather read a value than compute it each;
  \"written\" says whether a kernel writes a value that is neither saved nor an output, where the compiler is known to.

Examples:
  remat plan cut step.json
  remat plan cut step.json --budget 6GiB --json > plan.json
  remat plan cut step.json --curve                          time against memory, all budgets at once
  remat plan cut step.json --frontier --json                the plans of all budgets, one a line
  remat plan cut step.json --groups --json                  what each fusion group recomputes of those it reads")]
pub(crate) struct PlanCut {
    /// The joint graph, `-` for standard input.
    #[arg(value_name = "GRAPH")]
    pub(crate) graph: PathBuf,
    /// Of several minimum cuts the one nearest the inputs, which recomputes most.
    #[arg(long)]
    pub(crate) no_reweight: bool,
    /// Bytes of the whole step, inputs and outputs included, as 6GiB or 512MB. With --curve or
    /// --frontier the largest budget.
    #[arg(long, value_name = "BYTES", value_parser = remat_trace::parse_bytes, allow_hyphen_values = true)]
    pub(crate) budget: Option<Bytes>,
    /// Time against memory for all budgets at once; the first is the smallest feasible one found.
    #[arg(long)]
    pub(crate) curve: bool,
    /// All plans of the curve, peaks rising: what each saves and recomputes. With --budget those that fit.
    #[arg(long, conflicts_with = "curve")]
    pub(crate) frontier: bool,
    /// The recomputation between any two fusion groups that touch, by the groups of the nodes.
    #[arg(long, conflicts_with_all = ["budget", "curve", "frontier", "no_reweight"])]
    pub(crate) groups: bool,
    /// One line of JSON a plan, point or pair of groups, in place of tables; sizes in bytes, times in nanoseconds.
    #[arg(long)]
    pub(crate) json: bool,
}
