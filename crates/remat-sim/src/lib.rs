//! The simulator: recorded steps replayed through the very engine that trains, with a virtual clock.
//!
//! From one recorded step the simulator finds, for any budget and any policy, what the step would cost inside it.
//! Nothing is computed: an op takes the recorded time each time it runs. The engine is set as in the simulator of DTR's
//! authors (Kirisame et al., ICLR 2021, section 4.2): lineage is kept for ever, and missing inputs are recomputed in
//! DTR's own order only. On the authors' logs the results equal theirs, to the nanosecond.
//!
//! ```
//! use remat_core::{Bytes, Dealloc, Policy};
//! use remat_sim::{Budget, Program, Setting, Status};
//! use remat_trace::{Event, TraceOutput, TraceOutputKind};
//!
//! // Two results of 60 bytes each; the first is read again at the end.
//! let op = |input, tensor| Event::Op {
//!     name: "op".into(),
//!     inputs: vec![input],
//!     outputs: vec![TraceOutput { tensor, kind: TraceOutputKind::Fresh { bytes: 60, device: 0 } }],
//!     workspace: 0,
//!     workspace_device: 0,
//!     cost: 5,
//!     replay: true,
//! };
//! let events = [
//!     Event::Constant { tensor: 0, bytes: 10, device: 0 },
//!     op(0, 1),
//!     op(0, 2),
//!     Event::Release { tensor: 2 },
//!     Event::Pin { tensor: 1 },
//! ];
//! let program: Program = events.iter().collect();
//! let base = program.base()?;
//! assert_eq!((base.memory, base.cost.0), (Bytes(130), 10));
//!
//! let setting = Setting {
//!     policy: Policy::default().into(),
//!     dealloc: Dealloc::Eager,
//!     budget: Budget::Ratio(0.6),
//!     thrash_limit: 1.0,
//!     seed: 0,
//!     ..Setting::default()
//! };
//! let outcome = program.run(&base, &setting)?;
//! assert_eq!(outcome.status, Status::Ok);
//! assert_eq!((outcome.counters.replays, outcome.peak), (1, Bytes(70)));
//! assert_eq!(outcome.overhead(&base), 1.6); // the clock starts at 1
//! # Ok::<(), remat_sim::Unsound>(())
//! ```
//!
//! # Rules of a simulation
//!
//! - A [`Program`] is a log or a trace, read once. Tensors of a log that are referenced at its end are pinned there
//!   (the paper's output condition); a trace states its pins itself.
//! - The budget is that of device 0, the first device of the trace; other devices have no limit.
//! - [`Base`] is the step without a limit, under banishing. Ratios and limits refer to it.
//! - A run ends where the program does; or where the budget cannot be met ([`Status::Oom`]); or where recomputing
//!   exceeds its limit ([`Status::Thrash`]). The engine tries no other order of replays than DTR's, so that results can
//!   be compared with the paper's. A front end of Remat tries more, and runs in smaller budgets.
//!
//! # Modules
//!
//! | module | it holds |
//! | --- | --- |
//! | [`Program`] | a recorded step in flat vectors |
//! | [`Base`] | the step without a limit |
//! | [`Setting`], [`Outcome`] | one run |
//! | [`Eviction`] | a policy of the engine, or the plan of selective recomputation |
//! | [`Plan`], [`Program::run_plan`] | a run as a plan says |
//! | [`Floor`] | the smallest budget that a recorded run gets through in training |
//! | [`Reruns`] | the ops that a run replays, and where |
//! | [`sweep`] | many runs on several threads, in order |
//! | [`linear`] | the linear network of DTR theorem 3.1, and a picture of memory while it runs |
//! | [`checkpointing`] | ops that static schemes take for the linear network: Chen's, Treeverse |
//! | [`adversary`] | the adversary of DTR theorem 3.2 |
//! | [`theorems`] | the runs of both theorems that figures show |

#![forbid(unsafe_code)]

pub mod adversary;
mod attention;
mod base;
mod bounds;
pub mod checkpointing;
mod drive;
mod eviction;
mod floor;
pub mod linear;
mod op_kind;
mod planned;
mod program;
mod recorded;
mod reruns;
mod role;
mod run;
mod selective;
mod sweep;
pub mod theorems;

pub use attention::NoAttention;
pub use base::Base;
pub use bounds::{Probe, Smallest};
pub use drive::Unsound;
pub use eviction::{Eviction, UnknownEviction};
pub use floor::{Floor, FloorSearch};
pub use planned::{Misfit, MisfitReason, Plan, PlanAction, PlannedArena};
pub use program::Program;
pub use recorded::{Adopted, Mutations};
pub use reruns::{Reruns, STARTING_POLICIES};
pub use run::{Budget, EngineSetting, Outcome, Setting, Status};
pub use sweep::{Job, in_order, sweep};

/// The README's program, so that the compiler checks it.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
