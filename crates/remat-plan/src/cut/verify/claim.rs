//! Claims of plans, and the findings of a check.

use serde::Deserialize;
use serde::de::IgnoredAny;
use std::fmt;

/// The claims of a plan about itself; only `saved` must be there. A field that plans do not have is an error.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Names of the saved nodes.
    pub saved: Vec<String>,
    /// Names of the recomputed nodes.
    pub recomputed: Option<Vec<String>>,
    /// Names of the nodes that are recomputed although the rules ban it.
    #[serde(default)]
    pub lifted: Vec<String>,
    /// Sum of the capacities that are cut.
    pub cost: Option<u64>,
    /// Bytes of all saved values.
    pub saved_bytes: Option<u64>,
    /// The most bytes at once.
    pub peak_bytes: Option<u64>,
    /// Nanoseconds of ops that run a second time.
    pub recompute_ns: Option<u64>,
    /// The budget, in bytes.
    pub budget_bytes: Option<u64>,
    /// The nodes of the backward pass in order; not compared, like the next three.
    #[serde(default)]
    pub backward: IgnoredAny,
    /// The nodes that the rules ban from being recomputed.
    #[serde(default)]
    pub banned: IgnoredAny,
    /// The least nanoseconds that any choice within the budget recomputes.
    #[serde(default)]
    pub bound_ns: IgnoredAny,
    /// Seconds that planning took.
    #[serde(default)]
    pub seconds: IgnoredAny,
}

/// The cost, time and memory of a valid plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Verified {
    /// Names of the recomputed nodes, in the order of the graph.
    pub recomputed: Vec<String>,
    /// Sum of the capacities that are cut.
    pub cost: u64,
    /// Bytes of all saved values.
    pub saved_bytes: u64,
    /// The most bytes at once.
    pub peak_bytes: u64,
    /// Nanoseconds of ops that run a second time beside the kernels of the backward pass.
    pub recompute_ns: u64,
}

/// Why a plan is not valid, or not what it claims.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault(pub(crate) String);

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Fault {}

pub(crate) fn fault<T>(reason: String) -> Result<T, Fault> {
    Err(Fault(reason))
}
