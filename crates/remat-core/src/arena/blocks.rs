//! Arenas: a resident storage of a device with one is a block with an address (Coop section 3.1), and so is every
//! output and workspace of an op under way.

use super::partition::Partitioning;
use crate::config::{self, Config, Memory, Moves};
use crate::eviction::policy::Gaps;
use crate::graph::{Graph, NONE, NOWHERE, Storage};
use crate::ids::{OpId, StorageId};
use crate::pool::Pool;
use std::fmt;

/// The arena of one device.
pub(crate) struct Arena {
    pub(crate) pool: Pool,
    /// By the device's slots: whose block it is; [`NONE`] for one that is reserved.
    owners: Vec<u32>,
}

/// The arenas of all devices.
pub(crate) struct Arenas {
    /// By device; `None` where bytes are only counted.
    each: Vec<Option<Arena>>,
    alignment: Option<u64>,
    /// Storages of fewer bytes have no block.
    pub(crate) smallest: u64,
    /// A front end tells where blocks are: storages may lie elsewhere.
    pub(crate) observed: bool,
    pub(crate) partition: Partitioning,
    moves: Moves,
    gaps: Gaps,
    /// Open ops that have workspace.
    pub(crate) working: Vec<OpId>,
    /// Resident without a block: they turned out larger than announced.
    pub(crate) unplaced: Vec<StorageId>,
}

impl Arenas {
    pub(crate) fn new(config: &Config, gaps: Gaps) -> Arenas {
        let (alignment, chosen) = match config.memory {
            Memory::Fungible => (None, config::Arena::default()),
            Memory::Arena(arena) => (Some(arena.alignment.bytes()), arena),
        };
        let mut arenas = Arenas {
            each: Vec::new(),
            alignment,
            smallest: chosen.smallest.0,
            observed: false,
            partition: Partitioning::new(chosen.partition),
            moves: chosen.moves,
            gaps: match config.memory {
                Memory::Fungible => Gaps::Ignored,
                Memory::Arena(_) => gaps,
            },
            working: Vec::new(),
            unplaced: Vec::new(),
        };
        for (device, budget) in config.budgets.iter().enumerate() {
            if let Some(budget) = budget {
                arenas.make(device, budget.0);
            }
        }
        arenas
    }

    /// A device that had no budget gets an arena, if budgets are arenas.
    fn make(&mut self, device: usize, capacity: u64) {
        let Some(alignment) = self.alignment else {
            return;
        };
        if device >= self.each.len() {
            self.each.resize_with(device + 1, || None);
        }
        let capacity = capacity.min(i64::MAX as u64);
        self.each[device] = Some(Arena {
            pool: Pool::holding(capacity, alignment),
            owners: Vec::new(),
        });
    }

    pub(crate) fn has(&self, device: u8) -> bool {
        matches!(self.each.get(usize::from(device)), Some(Some(_)))
    }

    /// Whether there is any.
    pub(crate) fn any(&self) -> bool {
        !self.each.is_empty()
    }

    pub(crate) fn get(&self, device: u8) -> Option<&Arena> {
        self.each.get(usize::from(device))?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, device: u8) -> Option<&mut Arena> {
        self.each.get_mut(usize::from(device))?.as_mut()
    }

    /// The arenas by device.
    fn all(&self) -> impl Iterator<Item = (u8, &Arena)> {
        let each = self.each.iter().enumerate();
        each.filter_map(|(device, arena)| Some((device as u8, arena.as_ref()?)))
    }

    /// Whether blocks may be moved.
    pub(crate) fn moves_blocks(&self) -> bool {
        matches!(self.moves, Moves::Copied { .. })
    }

    /// How many bytes can be moved in so many nanoseconds.
    pub(crate) fn bytes_moved_in(&self, nanoseconds: u64) -> u64 {
        match self.moves {
            Moves::Never => 0,
            Moves::Copied {
                bytes_per_microsecond,
            } => {
                let bytes = u128::from(nanoseconds) * u128::from(bytes_per_microsecond.get());
                u64::try_from(bytes / 1000).unwrap_or(u64::MAX)
            }
        }
    }

    /// Whether the policy counts the free bytes beside a storage into its size.
    pub(crate) fn count_gaps(&self) -> bool {
        self.gaps == Gaps::Counted
    }

    /// The bytes that a storage is scored by: its own, and the free ones beside it where the policy counts them.
    pub(crate) fn scored_bytes(&self, storage: &Storage) -> u64 {
        if !self.count_gaps() || storage.address == NOWHERE {
            return storage.bytes;
        }
        let arena = self.get(storage.device);
        let (below, above) = arena
            .and_then(|arena| arena.pool.neighbours(storage.address))
            .unwrap_or((0, 0));
        storage.bytes.saturating_add(below).saturating_add(above)
    }

    /// The owners of the blocks around one that was taken or freed.
    pub(crate) fn owners_beside(&self, device: u8, address: u64) -> [Option<StorageId>; 3] {
        let Some(arena) = self.get(device) else {
            return [None; 3];
        };
        let around = arena.pool.taken_around(address);
        around.map(|slot| slot.and_then(|slot| arena.owner(slot)))
    }

    /// Whether blocks and storages agree: each resident storage of some bytes has a block of its own, large enough; all
    /// other blocks are reserved by ops under way.
    pub(crate) fn check(&self, graph: &Graph) -> Result<(), String> {
        for (device, arena) in self.all() {
            arena.pool.check()?;
            let mut owned = 0;
            for (id, storage) in graph.storages.iter().enumerate() {
                if !storage.used || storage.device != device {
                    continue;
                }
                let s = StorageId(id as u32);
                if storage.address != NOWHERE {
                    arena.check_owner(s, storage)?;
                    owned += 1;
                } else if self.lacks_block(s, storage) {
                    return Err(format!("storage {id} is resident and has no block"));
                }
            }
            let taken = arena.pool.blocks().filter(|(.., taken)| *taken).count();
            // An observed block may be another's.
            if graph.open_ops == 0 && taken != owned && !self.observed {
                return Err(format!(
                    "of {taken} blocks {owned} belong to a storage, and no op is under way"
                ));
            }
        }
        Ok(())
    }

    /// Whether a storage without a block should have one.
    fn lacks_block(&self, s: StorageId, storage: &Storage) -> bool {
        !self.observed
            && storage.resident
            && storage.bytes > 0
            && storage.bytes >= self.smallest
            && !self.unplaced.contains(&s)
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

    /// The block that begins at an address is a storage's from now on, or reserved.
    pub(crate) fn set_owner(&mut self, address: u64, owner: Option<StorageId>) {
        if let Some(slot) = self.pool.taken_at(address) {
            let slot = slot as usize;
            if slot >= self.owners.len() {
                self.owners.resize(slot + 1, NONE);
            }
            self.owners[slot] = owner.map_or(NONE, |s| s.0);
        }
    }

    fn check_owner(&self, s: StorageId, storage: &Storage) -> Result<(), String> {
        let size = self.pool.size_of(storage.address);
        if self.owner_at(storage.address) != Some(s) || size < Some(storage.bytes) {
            return Err(format!(
                "storage {} does not own the block at {:#x}",
                s.0, storage.address
            ));
        }
        Ok(())
    }
}

impl fmt::Debug for Arenas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (device, arena) in self.all() {
            write!(f, "arena {device} {:?}", self.partition)?;
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
