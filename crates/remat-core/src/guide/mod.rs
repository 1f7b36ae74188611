//! Steps that repeat: found, recorded for a planner, and followed as planned.
//!
//! | file | concept |
//! | --- | --- |
//! | `signature` | what makes two ops of two steps the same |
//! | `repeats` | the period of the ops so far |
//! | `recorder` | one period, written down for a planner |
//! | `plan` | a planned step |
//! | `places` | where its blocks lie in an arena |
//! | `drift` | whether steps take as long as when they were planned |
//! | `trial` | whether a plan pays by the clock |
//! | `follower` | where in a planned step the program is |
//! | `guides` | all of these, told what the engine is told |

mod drift;
mod follower;
mod guides;
mod places;
mod plan;
mod recorder;
mod repeats;
mod signature;
mod trial;

pub use follower::{Guided, Planned, StepMark};
pub(crate) use guides::Guides;
pub(crate) use places::Before;
pub use places::{Origin, Places};
pub use plan::{Guide, GuideAction, InvalidGuide, StepCosts};
pub use recorder::{Lies, Recorded, Told, ToldOutput};
