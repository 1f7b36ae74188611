//! The dispatch mode: every torch op of the program passes through [`Session`].

mod blank;
mod buffers;
mod costs;
mod evictor;
mod filling;
mod finish;
mod forms;
mod inputs;
mod known;
mod learn;
mod lent;
mod lock;
mod measure;
mod modes;
pub mod native;
mod op;
mod placed;
pub mod rehearsal;
mod restore;
mod route;
mod run;
mod running;
mod seen;
mod session;
mod settings;
mod sizes;
mod state;
mod stats;
mod thrashing;
mod unrecorded;
mod versions;
mod watch_clock;

pub use session::Session;
