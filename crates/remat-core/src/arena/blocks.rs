//! Storages with addresses: where an arena has room, and what is evicted where it has none (Coop, section 3).
//!
//! A resident storage of a pool with an arena is a block; so is what an op under way makes and works in. Every change is
//! journaled: a plan is laid out with the addresses that it will have.

use super::compaction::Compaction;
use super::observe::Placement;
use super::partition::Densities;
use super::window::Windows;
use crate::graph::NONE;
use crate::journal::Entry;
use crate::pool::Pool;
use crate::room::placing::Request;
use crate::transaction::state::State;
use crate::{Config, Ends, Memory, Moves, OpId, Policy, Price, StorageId};
use std::fmt;

/// No address.
pub(crate) const NOWHERE: u64 = u64::MAX;

/// The arena of one pool.
pub(crate) struct Arena {
    pub(crate) pool: Pool,
    /// By the pool's slots: whose block it is; [`NONE`] for one that is reserved.
    owners: Vec<u32>,
}

/// The arenas of all pools, and what placing goes by.
pub(crate) struct Arenas {
    /// By pool; `None` where bytes are only counted.
    pub(crate) each: Vec<Option<Arena>>,
    pub(crate) alignment: Option<u64>,
    pub(crate) ends: Ends,
    /// Storages of fewer bytes have no block.
    pub(crate) smallest: u64,
    /// A front end tells where blocks are: storages may lie elsewhere.
    pub(crate) observed: bool,
    /// Open ops that have workspace.
    pub(crate) working: Vec<OpId>,
    /// Where the latest plan puts what its steps make, and the op that it is for.
    pub(crate) placements: Vec<Placement>,
    /// What the op under way needs.
    pub(crate) requests: Vec<Request>,
    pub(crate) densities: Densities,
    pub(crate) windows: Windows,
    pub(crate) moves: Moves,
    pub(crate) compaction: Compaction,
    /// Room is made while an op runs: what it reads stays where it is.
    pub(crate) in_op: bool,
    /// Blocks evicted for the shortage under way: address, bytes.
    pub(crate) evicted: Vec<(u64, u64)>,
    /// What was evicted in the plan under way, at the cost that it was chosen for. (What came back since may have a bound only.)
    pub(crate) chosen: Vec<(StorageId, i64)>,
    /// Every block is placed from the low end, as where a plan was measured.
    pub(crate) from_below: bool,
    /// Resident without a block: they turned out larger than announced.
    pub(crate) homeless: Vec<StorageId>,
    pub(crate) stopwatch: Option<fn() -> u64>,
    /// Nanoseconds by the stopwatch.
    pub(crate) search_time: u64,
    /// Scores count the free bytes beside a storage (`dte`).
    pub(crate) weighs_gaps: bool,
    /// Storages evicted together are neighbours (`coop`), and these are compared so.
    pub(crate) windows_by: Option<Price>,
}

impl Arenas {
    pub(crate) fn new(config: &Config) -> Arenas {
        let (alignment, chosen) = match config.memory {
            Memory::Fungible => (None, crate::Arena::default()),
            Memory::Arena(arena) => (Some(arena.alignment.bytes()), arena),
        };
        let mut arenas = Arenas {
            each: Vec::new(),
            alignment,
            ends: chosen.ends,
            smallest: chosen.smallest.0,
            observed: false,
            working: Vec::new(),
            placements: Vec::new(),
            chosen: Vec::new(),
            requests: Vec::new(),
            densities: Densities::default(),
            windows: Windows::default(),
            moves: chosen.moves,
            compaction: Compaction::default(),
            in_op: false,
            evicted: Vec::new(),
            from_below: false,
            homeless: Vec::new(),
            stopwatch: config.stopwatch,
            search_time: 0,
            weighs_gaps: alignment.is_some() && config.policy.weighs_gaps(),
            windows_by: match config.policy {
                Policy::Coop { price, .. } if alignment.is_some() => Some(price),
                _ => None,
            },
        };
        for (pool, budget) in config.budgets.iter().enumerate() {
            if let Some(budget) = budget {
                arenas.make(pool, budget.0);
            }
        }
        arenas
    }

    /// A pool that had no budget gets an arena, if budgets are arenas.
    pub(crate) fn make(&mut self, pool: usize, capacity: u64) {
        let Some(alignment) = self.alignment else {
            return;
        };
        if pool >= self.each.len() {
            self.each.resize_with(pool + 1, || None);
        }
        let capacity = capacity.min(i64::MAX as u64);
        self.each[pool] = Some(Arena {
            pool: Pool::holding(capacity, alignment),
            owners: Vec::new(),
        });
    }

    pub(crate) fn has(&self, pool: u8) -> bool {
        matches!(self.each.get(usize::from(pool)), Some(Some(_)))
    }

    /// Whether there is any.
    pub(crate) fn any(&self) -> bool {
        !self.each.is_empty()
    }

    pub(crate) fn get(&self, pool: u8) -> Option<&Arena> {
        self.each.get(usize::from(pool))?.as_ref()
    }

    pub(crate) fn arena(&mut self, pool: u8) -> Option<&mut Arena> {
        self.each.get_mut(usize::from(pool))?.as_mut()
    }

    /// The arenas by pool.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u8, &Arena)> {
        let each = self.each.iter().enumerate();
        each.filter_map(|(pool, arena)| Some((pool as u8, arena.as_ref()?)))
    }

    /// Runs what searches, and counts its time.
    pub(crate) fn time<T>(state: &mut State, search: impl FnOnce(&mut State) -> T) -> T {
        let Some(now) = state.arenas.stopwatch else {
            return search(state);
        };
        let started = now();
        let found = search(state);
        state.arenas.search_time += now().saturating_sub(started);
        found
    }
}

impl Arena {
    /// Whose block begins at an address.
    pub(crate) fn owner_at(&self, address: u64) -> Option<StorageId> {
        self.owner(self.pool.taken_at(address)?)
    }

    /// Whose block a slot is.
    pub(crate) fn owner(&self, slot: u32) -> Option<StorageId> {
        let owner = self.owners.get(slot as usize).copied().unwrap_or(NONE);
        (owner != NONE).then_some(StorageId(owner))
    }

    pub(crate) fn set_owner(&mut self, address: u64, owner: u32) {
        if let Some(slot) = self.pool.taken_at(address) {
            let slot = slot as usize;
            if slot >= self.owners.len() {
                self.owners.resize(slot + 1, NONE);
            }
            self.owners[slot] = owner;
        }
    }
}

impl State {
    /// The storage's block is the one at this address from now on; before it was reserved, or another's who gave it up.
    pub(crate) fn set_address(&mut self, s: StorageId, address: u64) {
        let before = self.graph.storages[s.index()].address;
        self.journal.write(Entry::Address(s, before));
        self.change_address(s, address);
    }

    fn change_address(&mut self, s: StorageId, address: u64) {
        let storage = &mut self.graph.storages[s.index()];
        let before = std::mem::replace(&mut storage.address, address);
        let pool = storage.pool;
        if let Some(arena) = self.arenas.arena(pool) {
            if before != NOWHERE && arena.owner_at(before) == Some(s) {
                arena.set_owner(before, NONE);
            }
            if address != NOWHERE {
                arena.set_owner(address, s.0);
            }
        }
        self.weigh_gaps_of(s);
    }

    /// Frees a block that is nobody's.
    pub(crate) fn free_block(&mut self, pool: u8, address: u64) {
        let Some(arena) = self.arenas.arena(pool) else {
            return;
        };
        // What is freed here was taken here: an error would mean that it was freed twice, and the account is right as it is.
        if let Ok(bytes) = arena.pool.free(address) {
            self.journal.write_freed(pool, address, bytes);
            self.weigh_gaps_beside(pool, address);
        }
    }

    /// The storage gives its block back, if it has one.
    pub(crate) fn vacate(&mut self, s: StorageId) {
        let storage = &self.graph.storages[s.index()];
        let (pool, address) = (storage.pool, storage.address);
        if address != NOWHERE {
            self.set_address(s, NOWHERE);
            self.free_block(pool, address);
        }
    }

    /// The new value takes over the block of the old one (Coop section 3.5).
    pub(crate) fn hand_block_over(&mut self, old: StorageId, new: StorageId) {
        // Who knows the address may look there again.
        self.graph.storages[new.index()].fixed |= self.graph.storages[old.index()].fixed;
        let address = self.graph.storages[old.index()].address;
        if address != NOWHERE {
            self.set_address(old, NOWHERE);
            self.set_address(new, address);
        }
    }

    /// Takes a block that is known to be free there.
    pub(crate) fn take_block_at(&mut self, pool: u8, address: u64, bytes: u64) {
        let Some(arena) = self.arenas.arena(pool) else {
            return;
        };
        if arena.pool.allocate_at(address, bytes).is_ok() {
            self.note_taken(pool, address);
        }
    }

    pub(crate) fn note_taken(&mut self, pool: u8, address: u64) {
        if let Some(arena) = self.arenas.arena(pool) {
            arena.set_owner(address, NONE);
        }
        self.journal.write(Entry::Taken(pool, address));
        self.weigh_gaps_beside(pool, address);
    }

    pub(crate) fn undo_block(&mut self, entry: Entry) {
        match entry {
            Entry::Taken(pool, address) => {
                if let Some(arena) = self.arenas.arena(pool) {
                    let freed = arena.pool.free(address);
                    debug_assert!(freed.is_ok(), "{freed:?}");
                }
                self.weigh_gaps_beside(pool, address);
            }
            Entry::Freed(pool, address) => {
                let bytes = self.journal.freed.pop().unwrap_or(0);
                if let Some(arena) = self.arenas.arena(pool) {
                    let taken = arena.pool.allocate_at(address, bytes);
                    debug_assert!(taken.is_ok(), "{taken:?}");
                    arena.set_owner(address, NONE);
                }
                self.weigh_gaps_beside(pool, address);
            }
            Entry::Address(s, before) => self.change_address(s, before),
            Entry::Counted => {
                if let Some(before) = self.journal.counters.pop() {
                    self.counters = before;
                }
            }
            Entry::Capacity(pool, before) => self.set_capacity(pool, before),
            _ => {}
        }
    }

    /// Blocks that the plan so far took and nobody owns: what it was about to install when it was cut short.
    pub(crate) fn free_orphaned_blocks(&mut self) {
        for index in 0..self.journal.entries.len() {
            if let Entry::Taken(pool, address) = self.journal.entries[index] {
                let taken = self
                    .arenas
                    .get(pool)
                    .and_then(|arena| arena.pool.size_of(address));
                let owner = self
                    .arenas
                    .get(pool)
                    .and_then(|arena| arena.owner_at(address));
                if taken.is_some() && owner.is_none() {
                    self.free_block(pool, address);
                }
            }
        }
    }

    /// Whether blocks and storages agree: each resident storage of some bytes has a block of its own, large enough; all other
    /// blocks are reserved by ops under way.
    pub(crate) fn check_arenas(&self) -> Result<(), String> {
        for (pool, arena) in self.arenas.all() {
            arena.pool.check()?;
            let mut owned = 0;
            for (id, storage) in self.graph.storages.iter().enumerate() {
                if !storage.used || storage.pool != pool || storage.address == NOWHERE {
                    let homeless = self.arenas.homeless.contains(&StorageId(id as u32));
                    if storage.used
                        && !self.arenas.observed
                        && storage.bytes >= self.arenas.smallest
                        && storage.pool == pool
                        && storage.resident
                        && storage.bytes > 0
                        && !homeless
                    {
                        return Err(format!("storage {id} is resident and has no block"));
                    }
                    continue;
                }
                let size = arena.pool.size_of(storage.address);
                if arena.owner_at(storage.address) != Some(StorageId(id as u32))
                    || size < Some(storage.bytes)
                {
                    return Err(format!(
                        "storage {id} does not own the block at {:#x}",
                        storage.address
                    ));
                }
                owned += 1;
            }
            let taken = arena.pool.blocks().filter(|(.., taken)| *taken).count();
            // What was told of may be another's.
            if self.open_ops == 0 && taken != owned && !self.arenas.observed {
                return Err(format!(
                    "of {taken} blocks {owned} belong to a storage, and no op is under way"
                ));
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Arenas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (pool, arena) in self.all() {
            write!(f, "arena {pool} {:?}", self.densities)?;
            for (address, bytes, taken) in arena.pool.blocks().filter(|(.., taken)| *taken) {
                write!(
                    f,
                    " {address:#x}+{bytes:#x} {taken} {:?}",
                    arena.owner_at(address)
                )?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
