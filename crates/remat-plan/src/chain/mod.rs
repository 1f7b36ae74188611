//! Optimal plans for networks that are chains of stages.
//!
//! The model and its optimal plans are those of Beaumont, Eyraud-Dubois, Herrmann, Joly and Shilova, "Optimal
//! re-materialization strategies for heterogeneous chains" (ACM TOMS 2024), cited as *the paper* throughout. A chain
//! has stages 1 to n, the last of which is the loss. Stage `l` makes activation `l` from activation `l - 1`, and its
//! backward operation makes gradient `l - 1` from gradient `l`, its saved set and activation `l - 1`. A plan is a
//! sequence of the operations of table 1:
//!
//! | operation | does | keeps its input |
//! | --- | --- | --- |
//! | `Fnone l` | makes activation `l` | no |
//! | `Fck l` | makes activation `l` | yes |
//! | `Fall l` | makes the saved set of `l`, activation `l` in it | yes |
//! | `B l` | makes gradient `l - 1`; drops gradient `l`, the saved set of `l`, activation `l - 1` if it is alone | |
//! | `Fsave l` | as `Fall`, but the input has to be computed again before `B l` (not in the paper) | no |
//!
//! While an operation runs, memory holds the values that were there before, the values that the operation makes, and
//! its overhead. In the beginning the input and the gradient of the last activation are there.
//!
//! The folders are the stages of planning, in their order:
//!
//! | folder or file | concept |
//! | --- | --- |
//! | `model/` | chains, operations, sequences and their cost, strategies |
//! | `recurrences/` | the dynamic programs, apart from how memory is counted |
//! | `tables/` | tables by slots, by exact bytes and of the least memory; the plan of a class that is best in bytes |
//! | `baselines/` | strategies without tables |
//! | `planner.rs` | plans and curves by strategy and budget |
//! | `octaves.rs`, `growth.rs` | curves over all budgets, and the time that planning takes as chains grow |
//! | `verify.rs` | validity and cost of a plan, computed apart from all of these |
//! | `liveness.rs` | the bytes of a plan when a framework runs it |

mod baselines;
mod growth;
mod liveness;
mod model;
mod octaves;
mod planner;
mod recurrences;
mod tables;
mod verify;

pub use growth::{Growth, PARTS, Stop, Timing};
pub use liveness::{needed_later, peak_of_run};
pub use model::chain::{Chain, Description, Stage};
pub use model::error::{ChainError, Fault, PlanError};
pub use model::progress::Progress;
pub use model::sequence::{Action, Op, Plan};
pub use model::strategy::{Resolution, Strategy};
pub use octaves::{best_curve, everything};
pub use planner::{Point, curve, overhead, plan};
pub use verify::{Verified, verify};
