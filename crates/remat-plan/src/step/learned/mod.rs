//! Steps that an engine recorded while a program ran, and plans as an engine follows them.

mod drops;
mod events;
mod file;
mod guide;
mod kept;
mod places;
mod reads;
mod releases;
mod unrecorded;

pub use file::{PLANNED_STEPS_VERSION, PlannedStep, PlannedSteps, PlannedStepsError};
pub use guide::Learned;
pub use places::ArenaInUse;
pub use unrecorded::UNRECORDED_PART;
