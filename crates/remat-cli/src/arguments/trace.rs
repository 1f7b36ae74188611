//! Arguments of `remat trace`.

use clap::{Subcommand, ValueEnum};
use remat_trace::Format;
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum TraceCommand {
    /// Show what a trace holds, and its peak memory without a budget
    ///
    /// The peak is what the engine counts when it replays the trace and never has to evict: constants, outputs and
    /// workspaces that are there at once. A budget below the peak costs recomputation.
    #[command(after_help = "\
Examples:
  remat trace info step.trace.zst
  remat trace info unet.log --json | jq .unconstrained_peak_bytes")]
    Info {
        /// Trace to read, `-` for standard input.
        file: PathBuf,
        /// One line of JSON in place of the table; sizes are bytes, costs nanoseconds.
        #[arg(long)]
        json: bool,
    },
    /// Convert between Remat's traces and DTR logs, or pack a trace
    ///
    /// OUT is packed as its name ends: `.zst`, `.gz`, else plain. Until it is complete it is called OUT.partial, with a
    /// number where there is such a file. A DTR log cannot say everything: what is lost is counted on standard error.
    #[command(after_help = "\
Examples:
  remat trace convert unet.log unet.trace.zst     a DTR log as a trace
  remat trace convert step.trace.zst step.log     a trace as a DTR log
  remat trace convert --to dtr step.trace -       the same to standard output")]
    Convert {
        /// Trace to read, `-` for standard input.
        #[arg(value_name = "IN")]
        input: PathBuf,
        /// File to write, `-` for standard output.
        #[arg(value_name = "OUT")]
        output: PathBuf,
        /// Format to write; if not given, `dtr` for names in .log or .dtr (before .gz, .zst), else `remat`.
        #[arg(long, value_enum)]
        to: Option<To>,
    },
    /// Check that a trace is whole and consistent
    ///
    /// Every line is read and compared with those before it: ids known and unique, references never below none, sizes
    /// and costs within bounds, the end record there. The first fault is told with file and line; exit code 1.
    #[command(after_help = "\
Examples:
  remat trace check step.trace.zst && echo fine")]
    Check {
        /// Trace to read, `-` for standard input.
        file: PathBuf,
    },
}

/// A format that can be asked for by name.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum To {
    /// The log format of the DTR paper's authors.
    Dtr,
    /// Remat's own format.
    Remat,
}

impl From<To> for Format {
    fn from(to: To) -> Self {
        match to {
            To::Dtr => Format::Dtr,
            To::Remat => Format::Remat,
        }
    }
}
