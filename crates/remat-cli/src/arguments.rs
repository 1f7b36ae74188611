//! The command line as it is typed.

use clap::{Args, Parser, Subcommand, ValueEnum};
use remat_core::{Alignment, Bytes, Dealloc, Moves, Policy};
use remat_plan::chain::{Resolution, Strategy};
use remat_sim::Eviction;
use remat_trace::Format;
use std::ffi::OsString;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::thread;

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
  remat trace info step.trace.zst         what a recorded step holds, and its peak without a budget
  remat simulate step.trace.zst           what it would cost to run it inside smaller budgets
  remat min-budget step.trace.zst         the smallest budget that it runs in
  remat figures out --from *.trace.zst    the same as figures, on one page; also of chains
  remat plan chain net.json --budget 6GiB the best order of computing a chain of stages within 6 GiB
  remat plan cut step.json --budget 6GiB  what a compiled step saves and what it recomputes
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
    /// Writes into a folder. Of recorded steps: overhead against memory for all policies, the score without each of
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
    /// OUT is packed as its name ends: `.zst`, `.gz`, else plain. Until it is complete it is called OUT.partial. A DTR
    /// log cannot say everything: what is lost is counted on standard error.
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

#[derive(Debug, Subcommand)]
pub(crate) enum PlanCommand {
    /// Plan a network that is a chain of stages, optimally
    ///
    /// CHAIN.json says of each stage how long it takes and what it keeps; the last stage is the loss. Told are the
    /// operations in order: Fck l computes stage l and keeps its input, Fnone l lets the input go, Fall l keeps all
    /// that backward needs, B l is the backward operation (Fsave l, of `free` plans: as Fall, but the input goes and
    /// is computed again before B l).
    ///
    /// Strategies: persistent (the optimum of plans that keep what they kept until backward needs it), floating (the
    /// last kept activation may be exchanged for a later one: slower to plan, seldom better), free (a stage's saved
    /// set may stay without its input: slower still, often better), revolve (activations only), periodic:K (K
    /// segments, as PyTorch's checkpoint_sequential), periodic (the best K), chen-sqrt, chen-greedy, treeverse, none.
    Chain(PlanChain),
    /// Choose what a compiled step saves and what it recomputes: the minimum cut of its joint graph
    ///
    /// GRAPH.json holds the ops of a forward pass and of its backward pass. Saved are the values between the two for
    /// which fewest bytes are written and read; what kernels of the backward pass can compute on their way is
    /// recomputed instead. Not recomputed are ops that are compute-bound or random, reductions to less than a quarter,
    /// and what an op of the backward pass reads that it does not fuse with. Of several minimum cuts it is the one
    /// nearest the backward pass.
    ///
    /// With --budget such bans are lifted (never those of random ops) where it pays, until the step's peak fits, as
    /// counted by a timeline of all values: of all plans found that fit, the fastest. "any plan, at best" is what
    /// every plan that fits recomputes at least. Values take their bytes unless they stay inside kernels: an op that
    /// is fusible, no reduction, and read by fusible ops alone is computed where it is read, and what it reads is held
    /// until then. What is saved, or an output, is written.
    Cut(PlanCut),
}

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
        /// The plan, as `remat plan cut --json` prints it; only \"saved\" must be there.
        plan: PathBuf,
        /// One line of JSON in place of the table.
        #[arg(long)]
        json: bool,
    },
}

/// Arguments of `remat plan cut`.
#[derive(Debug, Args)]
#[command(after_help = "\
GRAPH.json:
  {\"nodes\": [
    {\"name\": \"x\", \"bytes\": 4096},
    {\"name\": \"y\", \"bytes\": 4096, \"inputs\": [\"x\"], \"op\": \"tanh\", \"fusible\": true, \"compute_bound\": false,
     \"random\": false, \"reduction\": false, \"cost\": 1500}, ...],
   \"inputs\": [\"x\"], \"tangents\": [\"g\"], \"forward_outputs\": [\"y\"], \"backward_outputs\": [\"dx\"]}
  cost is in nanoseconds. Left out, flags are false, and numbers 0. Beside these: \"savable\": false for tuples (their results
  are nodes of op \"getitem\") and \"recomputable\": false are wishes; \"view_of\" names the input whose memory a
  node shares; \"group\" is the number of its fusion group; \"workspace\" is what an op takes while it runs, in bytes;
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
    #[arg(long, value_name = "BYTES", value_parser = remat_trace::parse_bytes)]
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
    #[arg(long, value_name = "BYTES", value_parser = remat_trace::parse_bytes, required_unless_present = "curve")]
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
  remat simulate *.log --json | jq -r '[.log,.policy,.ratio,.overhead]|@tsv'

With --json each run is a line: sizes in bytes, times in nanoseconds. overhead is the clock at the end over the
cost of the step; clock starts at 1 and goes on by the cost of each op run, remat_cost is the part of it
that was recomputed. metadata_accesses counts storages looked at while deciding (DTR appendix D.3).

With --pool arena each line has more. A shortage is a block that was not to be had without evicting. fragmentation is
the part of the arena that is free once such a block was taken, searches the searches for what to evict, search_ns_mean their
wall time for a shortage; unused_evicted_bytes were evicted for a block that does not cover them,
moved_bytes copied elsewhere (--moves). cutoff_budget is the
largest budget in which anything is evicted, min_budget the smallest that does, both to a 4096th of the memory
without a limit (see `remat min-budget`).")]
pub(crate) struct Simulate {
    /// Traces and DTR logs to replay, `-` for standard input.
    #[arg(required = true, value_name = "LOG")]
    pub(crate) logs: Vec<PathBuf>,
    /// Eviction policies, by name (see `remat policies`).
    #[arg(
        long = "policy",
        value_name = "P",
        value_delimiter = ',',
        default_value = "dtr,dtr-eq,dtr-local,lru,size,msps"
    )]
    pub(crate) policies: Vec<Eviction>,
    #[command(flatten)]
    pub(crate) ratios: Ratios,
    /// Budgets in bytes, in place of ratios: 6GiB, 512MB.
    #[arg(
        long = "budget",
        value_name = "BYTES",
        value_delimiter = ',',
        value_parser = remat_trace::parse_bytes,
        conflicts_with = "ratios"
    )]
    pub(crate) budgets: Vec<Bytes>,
    #[command(flatten)]
    pub(crate) replays: Replays,
    /// One line of JSON a run in place of tables.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `remat min-budget`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  remat min-budget step.trace.zst --policy dtr-eq
  remat min-budget *.log --policy coop,dte,dtr --pool arena
  remat min-budget step.trace.zst --policy coop --pool arena --json | jq .min_budget

With --json each log and policy is a line: sizes in bytes; min_budget is null if not even four times the memory without a
limit does, unmet is the largest budget known not to do.")]
pub(crate) struct MinBudget {
    /// Traces and DTR logs to replay, `-` for standard input.
    #[arg(required = true, value_name = "LOG")]
    pub(crate) logs: Vec<PathBuf>,
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
    #[arg(long, value_name = "BYTES", value_parser = remat_trace::parse_bytes)]
    pub(crate) within: Option<Bytes>,
    #[command(flatten)]
    pub(crate) replays: Replays,
    /// One line of JSON a log and policy in place of tables.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of all commands that replay logs.
#[derive(Debug, Args)]
pub(crate) struct Replays {
    /// Treatment of tensors that the program lets go of.
    #[arg(long, value_enum, default_value = "eager")]
    pub(crate) dealloc: Deallocation,
    /// Give a run up once more than this many times the cost of the step was recomputed.
    #[arg(long, value_name = "X", value_parser = thrash_limit, default_value = "1.0")]
    pub(crate) thrash_limit: f64,
    /// Seed of the policy `random`.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) pool: PoolOptions,
    #[command(flatten)]
    pub(crate) jobs: Jobs,
}

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

Files of recorded steps: overhead, ablation-exact, ablation-eq, ablation-local, ablation-no,
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
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "60", value_parser = seconds)]
    pub(crate) growth: Option<f64>,
}

/// Arguments about the memory of a run.
#[derive(Clone, Debug, Args)]
pub(crate) struct PoolOptions {
    /// Kind of budget: a count of bytes, which are alike wherever they lie, or one arena, in which room is free bytes
    /// side by side.
    #[arg(long, value_enum, default_value = "fungible")]
    pub(crate) pool: PoolKind,
    /// Number that addresses and sizes in the arena are multiples of: a power of two. torch has 64 on CPUs, 512 on
    /// GPUs.
    #[arg(long, value_name = "BYTES", value_parser = alignment, default_value = "64")]
    pub(crate) alignment: Alignment,
    /// Property by which the policies named coop divide the arena: small storages from the low end and large ones from
    /// the high end, or expensive ones and cheap ones (Coop section 3.4).
    #[arg(long, alias = "ends", value_enum, default_value = "size")]
    pub(crate) partition: PlacedBy,
    /// Modules of Coop to leave out of the policies named coop: the window (storages are evicted one by one, by DTR's
    /// score), the partitioning of the arena, writing in place (mutations write into copies).
    #[arg(long, value_enum, value_name = "MODULE", value_delimiter = ',')]
    pub(crate) without: Vec<Module>,
    /// The policies named coop may copy blocks out of the way where that costs less than evicting: so many bytes a
    /// second, as 10GB. The time is part of the overhead.
    #[arg(long, value_name = "BYTES", value_parser = moves)]
    pub(crate) moves: Option<Moves>,
}

/// A kind of budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PoolKind {
    /// A count of bytes.
    Fungible,
    /// Addresses.
    Arena,
}

/// The property that decides at which end of an arena a storage lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PlacedBy {
    /// Bytes.
    Size,
    /// Cost for the size.
    Cost,
}

/// A module of Coop that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Module {
    /// Sliding window (Coop section 3.3).
    Window,
    /// Cheap tensor partitioning (section 3.4).
    Partition,
    /// Recomputable in-place (section 3.5).
    InPlace,
}

/// Budgets of every log.
#[derive(Debug, Args)]
pub(crate) struct Ratios {
    /// Budgets as parts of what each step needs without a limit.
    #[arg(
        long = "ratio",
        value_name = "R",
        value_delimiter = ',',
        value_parser = ratio,
        allow_negative_numbers = true,
        default_value = "0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9,1.0"
    )]
    pub(crate) ratios: Vec<f64>,
}

/// The number of runs at a time.
#[derive(Debug, Args)]
pub(crate) struct Jobs {
    /// Runs at a time; if not given, as many as there are processors. Results do not depend on it.
    #[arg(long, value_name = "N", value_parser = jobs)]
    jobs: Option<NonZeroUsize>,
}

impl Jobs {
    pub(crate) fn threads(&self) -> usize {
        let jobs = self.jobs.or_else(|| thread::available_parallelism().ok());
        jobs.map_or(1, NonZeroUsize::get)
    }
}

/// A deallocation policy that can be asked for by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Deallocation {
    /// It is evicted at once, and recomputed if something recomputed needs it.
    Eager,
    /// It is freed for good as soon as nothing evicted was computed from it.
    Banish,
    /// Nothing: it stays until the policy evicts it.
    Ignore,
}

impl Deallocation {
    /// The name that asks for it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Deallocation::Eager => "eager",
            Deallocation::Banish => "banish",
            Deallocation::Ignore => "ignore",
        }
    }
}

impl From<Deallocation> for Dealloc {
    fn from(named: Deallocation) -> Self {
        match named {
            Deallocation::Eager => Dealloc::Eager,
            Deallocation::Banish => Dealloc::Banish,
            Deallocation::Ignore => Dealloc::Ignore,
        }
    }
}

fn ratio(text: &str) -> Result<f64, String> {
    positive(text).ok_or_else(|| "a ratio is a number above 0, for example 0.5".into())
}

fn thrash_limit(text: &str) -> Result<f64, String> {
    positive(text).ok_or_else(|| "the limit is a number above 0, for example 1.0".into())
}

fn seconds(text: &str) -> Result<f64, String> {
    positive(text).ok_or_else(|| "the limit is a number of seconds above 0, for example 60".into())
}

fn alignment(text: &str) -> Result<Alignment, String> {
    let bytes = remat_trace::parse_bytes(text).map_err(|error| error.to_string())?;
    Alignment::new(bytes.0).map_err(|error| error.to_string())
}

fn moves(text: &str) -> Result<Moves, String> {
    let bytes = remat_trace::parse_bytes(text).map_err(|error| error.to_string())?;
    let rate = u32::try_from(bytes.0 / 1_000_000).ok();
    match rate.and_then(NonZeroU32::new) {
        Some(bytes_per_microsecond) => Ok(Moves::Copied {
            bytes_per_microsecond,
        }),
        None => Err("copies take place at 1MB a second or more, for example 10GB".into()),
    }
}

fn jobs(text: &str) -> Result<NonZeroUsize, String> {
    let count = text.trim().parse();
    count.map_err(|_| "at least 1 run at a time is needed, for example 4".into())
}

fn positive(text: &str) -> Option<f64> {
    let value: f64 = text.trim().parse().ok()?;
    (value.is_finite() && value > 0.0).then_some(value)
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
