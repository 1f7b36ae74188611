//! The engine, and the execution of its steps: evictions, replays, moves, and blocks of the arena.

mod accelerators;
mod constants;
mod garbage;
mod kept;
mod measured;
mod native;
mod passes;
mod perform;
mod placed;
mod plan_files;
mod plan_job;
mod plan_search;
mod plan_turns;
mod planned;
mod planning;
mod records;
mod replay;
mod shortage;
mod state;
mod step_clock;
mod unreferenced;
mod unwatched;

pub use accelerators::fresh;
pub use measured::STEP_KNOWN;
pub use placed::{is_exhausted, replaying};
pub use plan_files::PlanFiles;
pub use planning::{Planning, UnfitPlan};
pub use state::Executor;
