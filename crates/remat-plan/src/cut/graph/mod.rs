//! Joint graphs as they are written down, checked and planned, and what of them may not be recomputed.

pub(crate) mod ban;
pub(crate) mod ban_rules;
pub(crate) mod description;
pub(crate) mod fusion_bans;
pub(crate) mod joint_graph;
pub(crate) mod phases;
pub(crate) mod topology;
pub(crate) mod validate;
