//! The simulator: recorded steps replayed through the very engine that trains, with a virtual clock.
//!
//! A step recorded once answers for any budget and any policy what it would cost to run inside it. Nothing is computed;
//! an op takes as long as it did when it was recorded, each time it is run. The engine decides as DTR's authors' simulator does
//! (Kirisame et al., ICLR 2021, section 4.1): lineage is kept for ever, and missing inputs are brought back in DTR's own
//! order and no other. On their logs the results are theirs, to the nanosecond.
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
//!     outputs: vec![TraceOutput { tensor, kind: TraceOutputKind::Fresh { bytes: 60, pool: 0 } }],
//!     workspace: 0,
//!     workspace_pool: 0,
//!     cost: 5,
//!     replay: true,
//! };
//! let events = [
//!     Event::Constant { tensor: 0, bytes: 10, pool: 0 },
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
//! # What is simulated
//!
//! - A [`Program`] is a log or a trace, read once. A log's tensors that are referenced at its end are pinned there (the paper's
//!   output condition); of a trace, what its `pin` events say.
//! - The budget is that of pool 0, the first device of the trace; other pools are not limited.
//! - [`Base`] is the step without a limit, freeing for good what it can (banishing): what ratios and limits refer to.
//! - A run ends when the program does, or where the budget cannot be met ([`Status::Oom`]), or where more was recomputed than
//!   the limit allows ([`Status::Thrash`]). Steps that a front end of Remat would rescue by another order of replays are
//!   not rescued here: the order is DTR's, so that results can be compared with the paper's.
//!
//! # The rooms
//!
//! | module | it holds |
//! | --- | --- |
//! | [`Program`] | a recorded step in flat vectors |
//! | [`Base`] | the step without a limit |
//! | [`Setting`], [`Outcome`] | one run |
//! | [`Eviction`] | what is evicted: a policy's choice, or the plan of selective recomputation |
//! | [`sweep`] | many runs on several threads, in order |
//! | [`linear`] | the linear network of theorem 3.1: one step of it, and what is resident while it runs |
//! | [`checkpointing`] | ops that static checkpointing takes for the linear network: Chen's schemes, Treeverse |
//! | [`adversary`] | the graph of theorem 3.2, drawn while a policy decides |
//! | [`theorems`] | the runs of both that figures show |

pub mod adversary;
mod attention;
mod base;
mod bounds;
pub mod checkpointing;
mod eviction;
mod kind;
pub mod linear;
mod program;
mod run;
mod selective;
mod sweep;
pub mod theorems;

pub use attention::NoAttention;
pub use base::Base;
pub use bounds::{Probe, Smallest};
pub use eviction::{Eviction, UnknownEviction};
pub use program::{Mutations, Program};
pub use run::{Budget, Outcome, Setting, Status, Unsound};
pub use sweep::{in_order, sweep, Job};
