//! Steps that repeat: found, recorded for a planner, and followed as planned.
//!
//! | file | concept |
//! | --- | --- |
//! | `signature` | what makes two ops of two steps the same |
//! | `repeats` | the period of the ops so far |
//! | `kinds` | steps of several kinds in no order |
//! | `left` | periods that were left while they were recorded |
//! | `learning` | how the step is found that is recorded next |
//! | `recorder` | one period, written down for a planner |
//! | `plan` | a planned step |
//! | `places` | where its blocks lie in an arena |
//! | `before` | the actions of a guide before an op |
//! | `drift` | whether steps take as long as when they were planned |
//! | `trial` | whether a plan pays by the clock |
//! | `in_force` | a guide that is followed, and how it did |
//! | `so_far` | the ids of a planned step's ops and storages so far |
//! | `follower` | where in a planned step the program is |
//! | `unrecorded` | ops of a planned step that leave no record |
//! | `guides` | all of these, told what the engine is told |

mod before;
mod drift;
mod follower;
mod guides;
mod in_force;
mod kinds;
mod learning;
mod left;
mod places;
mod plan;
mod recorder;
mod repeats;
mod signature;
mod so_far;
mod trial;
mod unrecorded;

pub(crate) use before::Before;
pub use before::Planned;
pub(crate) use follower::Actions;
pub use follower::{Guided, StepMark};
pub(crate) use guides::Guides;
pub use places::{Origin, Places};
pub use plan::{Guide, GuideAction, InvalidGuide, StepCosts};
pub use recorder::{Lies, Recorded, Told, ToldOutput};
