//! Minimum cuts of joint graphs: the values that a compiled step saves, and those that it recomputes.
//!
//! The paper, throughout, is Yu and He, "Transcending runtime-memory tradeoffs in checkpointing by being fusion
//! aware" (MLSys 2023). A joint graph holds the ops of a forward pass and of its backward pass. The backward pass is
//! handed some values of the forward pass and recomputes others: values that its own kernels can compute on their way
//! are cheaper to compute than to read. A minimum cut chooses the saved values so that the fewest bytes are written
//! and read.
//!
//! The folders are the stages of planning, in their order:
//!
//! | folder | concepts |
//! | --- | --- |
//! | `graph/` | joint graphs as they are written down, checked and planned; the two passes; bans of recomputation |
//! | `flow/` | networks, maximum flow, minimum cuts with their proof |
//! | `evaluate/` | the cost of saving, values inside kernels, lifetimes; cost, time and memory of a choice |
//! | `search/` | algorithm 1, plans within a budget and between fusion groups, lower bounds |
//! | `verify/` | validity and cost of a plan, computed apart from all of these |

mod error;
mod evaluate;
mod graph;
mod search;
mod verify;

pub use crate::flow::min_cut::{MinCut, NoMinCut, min_cut, min_cut_nearest_source};
pub use crate::flow::network::{Capacity, Edge, Network};
pub use error::{CutError, GraphError};
pub use graph::ban::Ban;
pub use graph::ban_rules::{Nearest, Wishes};
pub use graph::description::{Description, FusionRules, Node, Quantity};
pub use graph::joint_graph::JointGraph;
pub use search::budget::{Budgets, FrontierPlan, Planned, Tradeoff};
pub use search::frontier_search::Progress;
pub use search::groups::{Handover, between_groups};
pub use search::partition::{Cut, partition};
pub use verify::claim::{Claim, Fault, Verified};
pub use verify::verifier::verify;
