//! Arguments of `remat plan`.

mod chain;
mod cut;
mod step;

pub(crate) use chain::PlanChain;
use clap::Subcommand;
pub(crate) use cut::PlanCut;
pub(crate) use step::PlanStep;

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
    /// Search the cheapest schedule of a whole recorded step within a budget: which ops run again, and when
    ///
    /// LOG is any recorded step, of any shape. The plan has each op run for the first time in program order, and says
    /// before which of them others run again, and when each storage is dropped. The search starts from what the online
    /// policies dtr, dtr-eq and dtr-anc do at the same budget (see `remat simulate`), and costs at most as much
    /// wherever they run an op again at most once before each op. Memory is counted as the engine counts it, without
    /// addresses.
    ///
    /// Told with the plan is a bound: no schedule within the budget takes less time whose first runs are in program
    /// order, and which makes again neither what the recording pinned nor what has views that cannot be made again with
    /// it. Every plan is checked before it is told, by code that shares nothing with the search (`remat verify step`).
    Step(PlanStep),
}
