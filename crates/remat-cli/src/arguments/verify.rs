//! Arguments of `remat verify`.

use clap::Subcommand;
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum VerifyCommand {
    /// Recompute whether a chain's plan is valid, its makespan and its peak
    ///
    /// The operations are performed on paper, by code that shares nothing with the planners. Exit code 1 if one lacks
    /// an input, if the makespan or the peak are not as PLAN.json says, or if the peak is above its budget.
    #[command(after_help = "\
Examples:
  remat plan chain net.json --budget 6GiB --json > plan.json
  remat verify chain net.json plan.json")]
    Chain {
        /// The chain, `-` for standard input.
        chain: PathBuf,
        /// The plan, as `remat plan chain --json` prints it; only "sequence" must be there.
        plan: PathBuf,
        /// One line of JSON in place of the table.
        #[arg(long)]
        json: bool,
    },
    /// Recompute whether a cut of a joint graph is valid, its cost and its peak
    ///
    /// Worked out by code that shares nothing with the planner. Exit code 1 if the backward pass lacks a value, if it
    /// recomputes what is not to be, if cost, time or peak are not as PLAN.json says, or if the peak is above its
    /// budget.
    #[command(after_help = "\
Examples:
  remat plan cut step.json --budget 6GiB --json > plan.json
  remat verify cut step.json plan.json")]
    Cut {
        /// The joint graph, `-` for standard input.
        graph: PathBuf,
        /// The plan, as `remat plan cut --json` prints it; only "saved" must be there.
        plan: PathBuf,
        /// One line of JSON in place of the table.
        #[arg(long)]
        json: bool,
    },
    /// Recompute whether a plan of a recorded step is valid, its peak and its time
    ///
    /// The plan is performed on paper, by code that shares nothing with the planner and the engine. Exit code 1 if an
    /// op lacks an input, runs out of order or runs again although it must not; if what the recording pins, reads or
    /// still refers to is not there; if peak or times are not as PLAN.json says, or the peak is above its budget.
    #[command(after_help = "\
Examples:
  remat plan step step.trace.zst --ratio 0.7 --out plan.json
  remat verify step step.trace.zst plan.json")]
    Step {
        /// The recorded step: a trace or DTR log, `-` for standard input.
        log: PathBuf,
        /// The plan, as `remat plan step --out` writes it.
        plan: PathBuf,
        /// One line of JSON in place of the table.
        #[arg(long)]
        json: bool,
    },
}
