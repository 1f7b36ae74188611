//! Optimal plans for networks that are chains of stages.
//!
//! The model and its optimal plans are those of Beaumont, Eyraud-Dubois, Herrmann, Joly and Shilova, "Optimal re-materialization
//! strategies for heterogeneous chains" (ACM TOMS 2024), cited as *the paper* throughout. A chain has stages 1 to n, the last of
//! which is the loss. Stage `l` makes activation `l` from activation `l - 1`, and its backward operation makes gradient `l - 1` from
//! gradient `l`, its saved set and activation `l - 1`. A plan is a sequence of the operations of table 1:
//!
//! | operation | does | keeps its input |
//! | --- | --- | --- |
//! | `Fnone l` | makes activation `l` | no |
//! | `Fck l` | makes activation `l` | yes |
//! | `Fall l` | makes the saved set of `l`, activation `l` in it | yes |
//! | `B l` | makes gradient `l - 1`; gradient `l`, the saved set of `l` and activation `l - 1` go (if that is part of a saved set, it stays) | |
//! | `Fsave l` | beyond the paper: as `Fall`, but the input goes, and has to be computed again before `B l` | no |
//!
//! Memory while an operation runs is what is there before, what it makes, and its overhead. In the beginning the input and the
//! gradient of the last activation are there.
//!
//! | file | concept |
//! | --- | --- |
//! | `model.rs`, `sequence.rs`, `strategy.rs` | chains, plans, strategies |
//! | `planner.rs` | from a strategy and a budget to a plan, or a curve |
//! | `recurrence.rs`, `persistent.rs`, `floating.rs`, `program.rs` | the dynamic programs, apart from how memory is counted |
//! | `slots.rs`, `bounds.rs`, `offer.rs`, `exact.rs`, `smallest.rs`, `sizes.rs`, `table.rs` | tables by slots, by exact bytes, of the least memory; plans read off them |
//! | `optimum.rs`, `tally.rs` | the plan of a class that is best in bytes |
//! | `candidates.rs`, `segments.rs`, `treeverse.rs` | strategies without tables |
//! | `verify.rs` | what a plan is worth, computed apart from all of these |

mod bounds;
mod candidates;
mod error;
mod exact;
mod floating;
mod growth;
mod model;
mod octaves;
mod offer;
mod optimum;
mod persistent;
mod planner;
mod program;
mod recurrence;
mod segments;
mod sequence;
mod sizes;
mod slots;
mod smallest;
mod strategy;
mod table;
mod tally;
mod treeverse;
mod verify;

pub use error::{ChainError, PlanError};
pub use growth::{Growth, Stop, Timing, PARTS};
pub use model::{Chain, Description, Stage};
pub use octaves::{best_curve, everything};
pub use planner::{curve, overhead, plan, Point};
pub use sequence::{Action, Op, Plan};
pub use strategy::{Resolution, Strategy};
pub use table::Progress;
pub use verify::{verify, Fault, Verified};
