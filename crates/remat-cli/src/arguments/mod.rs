//! The command line as it is typed: the commands here, the arguments of each in its own file.

mod deallocation;
mod fault;
mod figures;
mod jobs;
mod min_budget;
mod number;
mod plan;
mod pool;
mod ratios;
mod replays;
mod simulate;
mod trace;
mod verify;

pub(crate) use deallocation::Deallocation;
pub(crate) use fault::one_line;
pub(crate) use figures::Figures;
pub(crate) use min_budget::MinBudget;
pub(crate) use plan::{PlanChain, PlanCommand, PlanCut, PlanStep};
pub(crate) use pool::{Module, PlacedBy, PoolKind, PoolOptions};
pub(crate) use replays::Replays;
pub(crate) use simulate::Simulate;
pub(crate) use trace::TraceCommand;
pub(crate) use verify::VerifyCommand;

use clap::{Parser, Subcommand};
use std::ffi::OsString;

/// Train inside a byte budget: tensors are dropped, and recomputed when they are needed again.
#[derive(Debug, Parser)]
#[command(name = "remat", version, after_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "\
Examples:
  remat run --budget 6GiB train.py        train inside 6 GiB (needs the Python package)
  remat measure train.py                  its peak, and what smaller budgets would cost (needs the package)
  remat trace info step.trace.zst         what a recorded step holds, and its peak without a budget
  remat simulate step.trace.zst           what it would cost to run it inside smaller budgets
  remat min-budget step.trace.zst         the smallest budget that it runs in
  remat figures out --from *.trace.zst    the same as figures, on one page; also of chains
  remat plan chain net.json --budget 6GiB the best order of computing a chain of stages within 6 GiB
  remat plan cut step.json --budget 6GiB  what a compiled step saves and what it recomputes
  remat plan step step.trace.zst --curve  what any recorded step costs at best within budgets
  remat policies                          the names that --policy takes

Byte counts are written 6GiB (2^30), 512MB (10^6), 6g (binary) or 1073741824.
Exit codes: 0 done, 1 the input is at fault, 2 the arguments are.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Look at, check and convert recorded steps
    ///
    /// A trace is a recorded training step: one line of JSON for each op, constant and reference. With it the step can
    /// be replayed without the model and the device. All commands read Remat's own traces and DTR logs, plain or
    /// packed (zstd, gzip); `-` is standard input.
    Trace {
        #[command(subcommand)]
        command: TraceCommand,
    },
    /// Replay recorded steps inside budgets, and tell what each would cost
    ///
    /// Nothing is computed: the engine is told what happened in the step, decides what to evict and what to recompute,
    /// and every op takes as long as it did when it was recorded. The step without a limit that ratios refer to frees
    /// for good all that it can. A run ends `ok`, `oom` (the budget cannot be met) or `thrash` (more was recomputed
    /// than --thrash-limit allows); the numbers of the last two are those of the place where the run was given up.
    ///
    /// Decisions and results are those of the DTR paper's simulator, which knows one order of replays only. A real run
    /// under `remat run` tries others too: it may fit where a simulated one does not, and recompute less. The budget
    /// is that of the first device of the trace.
    Simulate(Simulate),
    /// Find the smallest budget that recorded steps run in, by bisection
    ///
    /// Each probe is a run as `remat simulate` does it; one that is `oom` or `thrash` does not do. What is told is a
    /// budget that does, and at most --within bytes below it one does not. Smaller budgets that do may exist further
    /// down: a policy may fail in a larger budget and succeed in a smaller one.
    MinBudget(MinBudget),
    /// Draw the figures of the DTR and Coop papers, of any recorded steps, and of the Rotor paper, of any chains
    ///
    /// Writes into a folder. Of recorded steps: overhead against memory for all policies, the same for planned steps
    /// (`remat plan step`) beside policies and the bound, the score without each of
    /// its terms, deallocation, and the work of deciding; overhead, search latency and fragmentation in an arena;
    /// beside them, of no step in particular, the two theorems of the DTR paper: the linear network, and the
    /// adversary. Of chains (see `remat plan chain`): throughput against memory for all strategies, with the smallest
    /// budget of each. With --growth: planning time against the length of the chain.
    ///
    /// index.html shows all figures that were drawn: one file that opens without a network, in which every point
    /// answers to the pointer and every figure can be saved as PNG. Beside it each figure comes as SVG and as CSV (the
    /// numbers behind it). Files that are there already are replaced; what is written is complete or not there.
    ///
    /// A file is a chain if its first key is "input_bytes", "stages" or another one of CHAIN.json, whatever it is
    /// called; all else is a recorded step, standard input and pipes too. Strategies of which the work grows too fast
    /// for the length of a chain are left out, which is told, unless --strategy names them.
    Figures(Figures),
    /// Plan a step before it runs: what to keep, what to drop, what to compute again
    Plan {
        #[command(subcommand)]
        command: PlanCommand,
    },
    /// Check a plan, apart from what made it
    Verify {
        #[command(subcommand)]
        command: VerifyCommand,
    },
    /// List the eviction policies, one a line
    Policies,
    /// Tell what a Python program takes, and what smaller budgets would cost it (needs the Python package)
    ///
    /// This command is part of the Python package: `pip install .` and then `remat measure ...`, or
    /// `python -m remat measure ...`.
    Measure {
        /// Arguments for the Python package; see `python -m remat measure --help`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Run a Python program inside a budget (needs the Python package)
    ///
    /// This command is part of the Python package: `pip install .` and then `remat run ...`, or
    /// `python -m remat run ...`.
    Run {
        /// Arguments for the Python package; see `python -m remat run --help`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
}
