//! Arguments of all commands that replay logs.

use super::deallocation::Deallocation;
use super::jobs::Jobs;
use super::number::{positive, whole};
use super::pool::PoolOptions;
use clap::Args;
use std::path::PathBuf;

/// Arguments of all commands that replay logs.
#[derive(Debug, Args)]
pub(crate) struct Replays {
    /// Traces and DTR logs to replay, `-` for standard input.
    #[arg(required = true, value_name = "LOG")]
    pub(crate) logs: Vec<PathBuf>,
    /// Treatment of tensors that the program lets go of.
    #[arg(long, value_enum, default_value = "eager")]
    pub(crate) dealloc: Deallocation,
    /// Give a run up once more than this many times the cost of the step was recomputed.
    #[arg(long, value_name = "X", value_parser = thrash_limit, allow_negative_numbers = true, default_value = "1.0")]
    pub(crate) thrash_limit: f64,
    /// Set the engine as `remat run` does, in place of the DTR paper's setting: it forgets lineage that nothing needs,
    /// and tries other orders of replay. Fewer runs end as `oom`.
    #[arg(long)]
    pub(crate) as_training: bool,
    /// Seed of the policy `random`.
    #[arg(long, value_name = "N", value_parser = whole, allow_negative_numbers = true, default_value_t = 0)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) pool: PoolOptions,
    #[command(flatten)]
    pub(crate) jobs: Jobs,
}

fn thrash_limit(text: &str) -> Result<f64, String> {
    positive(text).ok_or_else(|| "the limit is a number above 0, for example 1.0".into())
}
