//! What a compiled step saves and what it recomputes: minimum cuts of joint graphs.
//!
//! The paper, throughout, is Yu and He, "Transcending runtime-memory tradeoffs in checkpointing by being fusion aware" (MLSys 2023). A
//! joint graph holds the ops of a forward pass and of its backward pass. The backward pass is handed some of the values of the
//! forward pass, and computes others again: those that kernels of its own can compute on their way are cheaper to compute than to
//! read. Which are saved so that fewest bytes are written and read is a minimum cut.
//!
//! | file | concept |
//! | --- | --- |
//! | `description.rs`, `validate.rs`, `topology.rs`, `model.rs`, `adjacency.rs` | joint graphs: as written down, checked, in an order, as planned |
//! | `phases.rs`, `ban.rs`, `capacity.rs` | what can run where; what is not recomputed; what saving costs |
//! | `network.rs`, `min_cut.rs`, `push_relabel.rs` | networks, minimum cuts with their proof, maximum flow |
//! | `partition.rs`, `recompute.rs` | algorithm 1; what follows from what is saved |
//! | `groups.rs` | the same between fusion groups |
//! | `kernels.rs`, `timeline.rs`, `worth.rs` | what is never written; when values come and go; what a choice is worth |
//! | `budget.rs`, `search.rs`, `frontier.rs` | plans within a budget |
//! | `lagrange.rs`, `moments.rs`, `relaxation.rs`, `bound.rs` | memory at a price, and how far from the best a plan can be |
//! | `verify.rs` | what a plan is worth, computed apart from all of these |
//! | `error.rs` | refusals |

mod adjacency;
mod ban;
mod bound;
mod budget;
mod capacity;
mod description;
mod error;
mod frontier;
mod groups;
mod kernels;
mod lagrange;
mod min_cut;
mod model;
mod moments;
mod network;
mod partition;
mod phases;
mod push_relabel;
mod recompute;
mod relaxation;
mod search;
#[cfg(test)]
mod search_quality;
mod timeline;
mod topology;
mod validate;
mod verify;
mod worth;

pub use ban::{Ban, Nearest, Wishes};
pub use budget::{Budgets, FrontierPlan, Planned, Tradeoff};
pub use description::{Description, Node, Quantity};
pub use error::{CutError, GraphError};
pub use groups::{between_groups, Handover};
pub use min_cut::{min_cut, min_cut_nearest_source, MinCut, NoMinCut};
pub use model::JointGraph;
pub use network::{Capacity, Edge, Network};
pub use partition::{partition, Cut};
pub use search::Progress;
pub use verify::{verify, Claim, Fault, Verified};
