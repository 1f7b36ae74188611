//! Treatment of tensors that the program lets go of.

use clap::ValueEnum;
use remat_core::Dealloc;

/// A deallocation policy that can be asked for by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Deallocation {
    /// It is evicted at once, and recomputed if something recomputed needs it.
    Eager,
    /// It is freed for good as soon as nothing evicted was computed from it.
    Banish,
    /// Nothing: it stays until the policy evicts it.
    Ignore,
}

impl Deallocation {
    /// The name that asks for it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Deallocation::Eager => "eager",
            Deallocation::Banish => "banish",
            Deallocation::Ignore => "ignore",
        }
    }
}

impl From<Deallocation> for Dealloc {
    fn from(named: Deallocation) -> Self {
        match named {
            Deallocation::Eager => Dealloc::Eager,
            Deallocation::Banish => Dealloc::Banish,
            Deallocation::Ignore => Dealloc::Ignore,
        }
    }
}
