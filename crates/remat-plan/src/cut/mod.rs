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

mod error;
mod evaluate;
mod flow;
mod graph;
mod search;
mod verify;

pub use error::{CutError, GraphError};
pub use flow::min_cut::{min_cut, min_cut_nearest_source, MinCut, NoMinCut};
pub use flow::network::{Capacity, Edge, Network};
pub use graph::ban::Ban;
pub use graph::ban_rules::{Nearest, Wishes};
pub use graph::description::{Description, FusionRules, Node, Quantity};
pub use graph::joint_graph::JointGraph;
pub use search::budget::{Budgets, FrontierPlan, Planned, Tradeoff};
pub use search::frontier_search::Progress;
pub use search::groups::{between_groups, Handover};
pub use search::partition::{partition, Cut};
pub use verify::claim::{verify, Claim, Fault, Verified};
