//! Memory as policies are given it: a count of bytes, or an arena with the modules of Coop that are theirs.

use crate::arguments::{Module, PlacedBy, PoolKind, PoolOptions};
use crate::failure::Failure;
use remat_core::{Alignment, Arena, Memory, Partition};
use remat_sim::{Eviction, Mutations, Setting};

/// Policies of windows and gaps need addresses.
pub(crate) fn check(options: &PoolOptions, policies: &[Eviction]) -> Result<(), Failure> {
    match policies.iter().find(|policy| policy.needs_arena()) {
        Some(policy) if options.pool == PoolKind::Fungible => Err(Failure::Usage(format!(
            "policy '{policy}' goes by addresses, which a count of bytes has none of; add --pool arena"
        ))),
        _ => Ok(()),
    }
}

/// Policy, memory and mutations of a run. The modules of Coop are those of the policies named for it; all others place
/// from the low end, and mutate as was recorded.
pub(crate) fn setting(options: &PoolOptions, policy: Eviction) -> Setting {
    let coop = matches!(policy, Eviction::Online(policy) if policy.evicts_windows());
    let has = |module| coop && !options.without.contains(&module);
    let partition = match options.partition {
        _ if !has(Module::Partition) => Partition::None,
        PlacedBy::Size => Partition::BySize,
        PlacedBy::Cost => Partition::ByCost,
    };
    let arena = Arena {
        alignment: options.alignment,
        partition,
        moves: options.moves.filter(|_| coop).unwrap_or_default(),
        ..Arena::default()
    };
    Setting {
        policy: match policy {
            Eviction::Online(policy) if !has(Module::Window) => policy.without_windows().into(),
            policy => policy,
        },
        memory: match options.pool {
            PoolKind::Fungible => Memory::Fungible,
            PoolKind::Arena => Memory::Arena(arena),
        },
        mutations: if has(Module::InPlace) {
            Mutations::InPlace
        } else if coop {
            Mutations::Copied
        } else {
            Mutations::Recorded
        },
        ..Setting::default()
    }
}

impl PoolOptions {
    /// An arena with all that Coop has.
    pub(crate) fn arena() -> PoolOptions {
        PoolOptions {
            pool: PoolKind::Arena,
            alignment: Alignment::default(),
            partition: PlacedBy::Size,
            without: Vec::new(),
            moves: None,
        }
    }

    /// Whether memory has addresses.
    pub(crate) fn is_arena(&self) -> bool {
        self.pool == PoolKind::Arena
    }

    /// The name of the kind.
    pub(crate) fn name(&self) -> &'static str {
        match self.pool {
            PoolKind::Fungible => "fungible",
            PoolKind::Arena => "arena",
        }
    }
}

/// The name of a kind of pool.
pub(crate) fn name(memory: Memory) -> &'static str {
    match memory {
        Memory::Fungible => "fungible",
        Memory::Arena(_) => "arena",
    }
}
