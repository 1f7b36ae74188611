//! Whole steps: which ops of a recorded step run again, and when.
//!
//! First runs follow the program, and a schedule names the ops that run again right before each. From these follow the
//! stretches in which storages are in memory. Minimum cuts at the fullest moment bring a schedule into its budget, and
//! a large neighbourhood search improves it (Shaw, CP 1998). The page `docs/explanation/step-planner.md` tells how.
//!
//! ```
//! use remat_core::Bytes;
//! use remat_plan::step::{verify, Planner, Search, Step};
//! use remat_trace::{Event, TraceOutput, TraceOutputKind};
//! use std::ops::ControlFlow;
//!
//! let op = |inputs: &[u64], tensor, bytes, cost| Event::Op {
//!     name: "op".into(),
//!     inputs: inputs.to_vec(),
//!     outputs: vec![TraceOutput { tensor, kind: TraceOutputKind::Fresh { bytes, device: 0 } }],
//!     workspace: 0, workspace_device: 0, cost, replay: true,
//! };
//! // Tensor 1 is read first and last, and op 3 needs the room.
//! let events = [
//!     Event::Constant { tensor: 0, bytes: 10, device: 0 },
//!     op(&[0], 1, 40, 7),
//!     op(&[1], 2, 5, 9),
//!     op(&[2], 3, 60, 9),
//!     Event::Release { tensor: 3 },
//!     op(&[1, 2], 4, 5, 9),
//!     Event::Release { tensor: 1 },
//!     Event::Release { tensor: 2 },
//! ];
//! let step = Step::from_events(&events)?;
//! assert_eq!(step.peak_bytes(), 115);
//! let search = Search { iterations: Some(10), ..Search::default() };
//! let plan = Planner::new(&step).plan(Bytes(80), &search, &mut |_| ControlFlow::Continue(()))?;
//! assert_eq!((plan.recompute_ns, plan.peak_bytes), (7, 75));
//! assert!(verify(&events, &plan).is_ok());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The folders are the stages of planning, in their order:
//!
//! | folder | concepts |
//! | --- | --- |
//! | `model/` | a recorded step in flat arrays: ops, storages, reads, writes in place, views |
//! | `timeline/` | moments, runs again, lives of storages, memory by slot; schedules that change run by run |
//! | `search/` | cuts at the fullest moment, pruning, rounds, the lower bound |
//! | `plan/` | plans as they are written down, made of schedules |
//! | `placement/` | the blocks that a plan takes, and addresses for them |
//! | `learned/` | steps that an engine recorded while a program ran, and plans as it follows them |
//! | `verify/` | validity, memory and time of a plan, worked out apart from all of these |

mod learned;
mod model;
mod placement;
mod plan;
mod search;
mod timeline;
mod verify;

pub use learned::{
    ArenaInUse, Learned, PLANNED_STEPS_VERSION, PlannedStep, PlannedSteps, PlannedStepsError,
    UNRECORDED_PART,
};
pub use model::error::{StepError, Summed};
pub use model::step::Step;
pub use model::writer::Kept;
pub use placement::{Addresses, place};
pub use plan::step_plan::{Action, PLAN_VERSION, StepPlan};
pub use search::planner::{Planner, Search};
pub use search::rounds::Progress;
pub use verify::fault::{Fault, Reason, Undefined, Verified};
pub use verify::verifier::verify;
