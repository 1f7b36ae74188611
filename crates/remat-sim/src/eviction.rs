//! Ways of making room, by name: an eviction policy of the engine, or a plan made before the step runs.

use remat_core::Policy;
use std::fmt;
use std::str::FromStr;

/// A way of making room.
///
/// ```
/// use remat_core::Policy;
/// use remat_sim::Eviction;
///
/// assert_eq!("lru".parse(), Ok(Eviction::Online(Policy::LRU)));
/// assert_eq!("sar".parse(), Ok(Eviction::Selective));
/// assert_eq!(Eviction::names().last(), Some("sar"));
/// assert!("belady".parse::<Eviction>().unwrap_err().to_string().ends_with("e-star, sar"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// The engine evicts the storages that the policy chooses.
    Online(Policy),
    /// Selective activation recomputation, `sar` (Korthikanti et al., 2022, section 5). The tensors between the product
    /// of queries and keys and the product with values are dropped after the forward pass has read them, and recomputed
    /// in the backward pass. Nothing else is evicted, whatever the budget.
    Selective,
}

/// The name of [`Eviction::Selective`].
const SELECTIVE: &str = "sar";

impl Eviction {
    /// All names: those of the engine's policies, and the simulator's own.
    pub fn names() -> impl Iterator<Item = &'static str> {
        remat_core::names().chain([SELECTIVE])
    }

    /// Whether it needs an arena.
    pub fn needs_arena(self) -> bool {
        matches!(self, Eviction::Online(policy) if policy.needs_arena())
    }
}

impl Default for Eviction {
    fn default() -> Self {
        Eviction::Online(Policy::default())
    }
}

impl From<Policy> for Eviction {
    fn from(policy: Policy) -> Self {
        Eviction::Online(policy)
    }
}

impl fmt::Display for Eviction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Eviction::Online(policy) => policy.fmt(f),
            Eviction::Selective => f.write_str(SELECTIVE),
        }
    }
}

impl FromStr for Eviction {
    type Err = UnknownEviction;

    fn from_str(name: &str) -> Result<Self, UnknownEviction> {
        match name {
            SELECTIVE => Ok(Eviction::Selective),
            _ => match name.parse() {
                Ok(policy) => Ok(Eviction::Online(policy)),
                Err(remat_core::UnknownPolicy(name)) => Err(UnknownEviction(name)),
            },
        }
    }
}

/// An error of an unknown name; its message lists the known ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownEviction(pub String);

impl fmt::Display for UnknownEviction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, {SELECTIVE}",
            remat_core::UnknownPolicy(self.0.clone())
        )
    }
}

impl std::error::Error for UnknownEviction {}
