//! A memory pool with addresses: one arena that blocks are taken from and given back to (Coop, sections 2.1 and 3.2).
//!
//! The pool keeps account of addresses `0 .. capacity` and touches no memory. Blocks lie side by side without a gap;
//! free ones that touch are one. So the state is the set of taken blocks and nothing else, whatever led to it: a free
//! is undone by [`Pool::allocate_at`], an allocation by [`Pool::free`], and what follows decides as if neither had
//! been.
//!
//! Blocks are kept in two treaps, all by address and the free ones by size, and in a list by address. An
//! operation takes O(log n) among n blocks, expected over the hashes of addresses, and allocates nothing once there
//! were as many blocks (`cargo run --release -p remat-core --example pool`).
//!
//! ```
//! use remat_core::pool::{Side, Fit, Pool};
//!
//! let mut pool = Pool::new(1024, 64)?;
//! let low = pool.allocate(100, Fit::First, Side::Low);
//! let high = pool.allocate(64, Fit::First, Side::High);
//! assert_eq!((low, high), (Some(0), Some(960)));
//! assert_eq!(pool.size_of(0), Some(128)); // whole units of the alignment
//! assert_eq!(pool.allocate(1000, Fit::Best, Side::Low), None);
//!
//! assert_eq!(pool.free(0), Ok(128));
//! assert!(pool.free(0).is_err());
//! assert_eq!(pool.largest_free(), 960);
//! # Ok::<(), remat_core::pool::PoolError>(())
//! ```

mod caching;
mod error;
mod tree;

pub use caching::CachingPool;
pub use error::PoolError;
pub(crate) use tree::NIL;
use tree::{Branch, Tree};

/// Which free block is taken, of those that are large enough.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fit {
    /// The one nearest the chosen end of the arena.
    #[default]
    First,
    /// The smallest; of equals the one nearest the chosen end.
    Best,
}

/// An end of the arena, and of the free block: blocks are placed at that end of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Side {
    /// Low addresses.
    #[default]
    Low,
    /// High addresses.
    High,
}

/// A block of the arena.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) taken: bool,
    /// The blocks at lower and at higher addresses, [`NIL`] at the ends.
    pub(crate) below: u32,
    pub(crate) above: u32,
}

/// A pool; see the [module](self).
#[derive(Clone, Debug)]
pub struct Pool {
    alignment: u64,
    capacity: u64,
    taken: u64,
    high_water: u64,
    /// By slot; slots are reused.
    blocks: Vec<Block>,
    spare: Vec<u32>,
    /// All blocks by `(address, 0)`; the weight is the size of a free one and 0 of a taken one.
    by_address: Tree,
    /// Free blocks by `(bytes, address)`.
    by_size: Tree,
    lowest: u32,
}

impl Pool {
    /// An empty arena of `capacity` bytes, rounded down to whole units of the alignment.
    ///
    /// # Errors
    /// [`PoolError::Alignment`] unless `alignment` is a power of two, [`PoolError::Capacity`] unless
    /// `alignment <= capacity < 2^63`.
    pub fn new(capacity: u64, alignment: u64) -> Result<Pool, PoolError> {
        if !alignment.is_power_of_two() {
            return Err(PoolError::Alignment { alignment });
        }
        if capacity < alignment || capacity > i64::MAX as u64 {
            return Err(PoolError::Capacity {
                capacity,
                alignment,
            });
        }
        Ok(Pool::holding(capacity, alignment))
    }

    /// [`new`](Pool::new) of checked numbers; below the alignment the capacity is 0.
    pub(crate) fn holding(capacity: u64, alignment: u64) -> Pool {
        let mut pool = Pool {
            alignment,
            capacity: 0,
            taken: 0,
            high_water: 0,
            blocks: Vec::new(),
            spare: Vec::new(),
            by_address: Tree::new(),
            by_size: Tree::new(),
            lowest: NIL,
        };
        pool.extend(capacity & !(alignment - 1));
        pool
    }

    /// Takes a block of so many bytes, rounded up to whole units of the alignment (0 bytes take one), and gives its
    /// address; `None` if no free block is large enough.
    pub fn allocate(&mut self, bytes: u64, fit: Fit, side: Side) -> Option<u64> {
        let bytes = self.rounded(bytes)?;
        let free = match fit {
            Fit::First => self.by_address.heavy(bytes, side.branch())?,
            Fit::Best => self.smallest(bytes, side)?,
        };
        let block = &self.blocks[free as usize];
        let address = match side {
            Side::Low => block.address,
            Side::High => block.address + (block.bytes - bytes),
        };
        self.carve(free, address, bytes);
        Some(address)
    }

    /// Takes a block at an address: undoes the [`free`](Pool::free) of a block of so many bytes.
    ///
    /// # Errors
    /// [`PoolError::Misaligned`], [`PoolError::Outside`], or [`PoolError::Taken`] if not all of it is free.
    pub fn allocate_at(&mut self, address: u64, bytes: u64) -> Result<(), PoolError> {
        if address % self.alignment != 0 {
            let alignment = self.alignment;
            return Err(PoolError::Misaligned { address, alignment });
        }
        let slot = self.slot_around(address)?;
        let block = &self.blocks[slot as usize];
        let left = block.bytes - (address - block.address);
        match self.rounded(bytes) {
            Some(bytes) if !block.taken && bytes <= left => {
                self.carve(slot, address, bytes);
                Ok(())
            }
            _ => Err(PoolError::Taken { address, bytes }),
        }
    }

    /// Moves the arena's end. Bytes are rounded down to whole units of the alignment.
    ///
    /// # Errors
    /// [`PoolError::Taken`] if something is taken beyond the new end, [`PoolError::Capacity`] for 2^63 and above.
    pub fn set_capacity(&mut self, capacity: u64) -> Result<(), PoolError> {
        let alignment = self.alignment;
        if capacity > i64::MAX as u64 {
            return Err(PoolError::Capacity {
                capacity,
                alignment,
            });
        }
        let capacity = capacity & !(alignment - 1);
        if capacity >= self.capacity {
            self.extend(capacity);
            return Ok(());
        }
        let taken = PoolError::Taken {
            address: capacity,
            bytes: self.capacity - capacity,
        };
        let top = self.slot_around(capacity)?;
        let block = &self.blocks[top as usize];
        let left = capacity - block.address;
        if block.taken || block.above != NIL {
            return Err(taken);
        }
        self.by_size.remove(top);
        match left {
            0 => self.drop_slot(top),
            _ => self.resize_free(top, left),
        }
        self.capacity = capacity;
        Ok(())
    }

    /// Gives a block back; returns its bytes, rounded as they were taken.
    ///
    /// # Errors
    /// [`PoolError::Outside`], [`PoolError::Free`] for what is free already, [`PoolError::Inside`] for an address amid
    /// a block.
    pub fn free(&mut self, address: u64) -> Result<u64, PoolError> {
        let slot = self.slot_of(address)?;
        let bytes = self.blocks[slot as usize].bytes;
        self.give_back(slot);
        Ok(bytes)
    }

    /// Bytes of the taken block at an address, rounded as they were taken; `None` if none begins there.
    pub fn size_of(&self, address: u64) -> Option<u64> {
        let slot = self.slot_of(address).ok()?;
        Some(self.blocks[slot as usize].bytes)
    }

    /// Bytes of the arena: whole units of the alignment.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The unit that addresses and sizes are multiples of, in bytes.
    pub fn alignment(&self) -> u64 {
        self.alignment
    }

    /// Bytes not taken, wherever they are.
    pub fn free_bytes(&self) -> u64 {
        self.capacity - self.taken
    }

    /// Bytes of the largest free block, 0 if there is none.
    pub fn largest_free(&self) -> u64 {
        self.by_address.largest()
    }

    /// The most bytes that were taken at a time.
    pub fn high_water(&self) -> u64 {
        self.high_water
    }

    /// All blocks in address order: address, bytes, whether it is taken.
    pub fn blocks(&self) -> impl Iterator<Item = (u64, u64, bool)> + '_ {
        let mut next = self.lowest;
        std::iter::from_fn(move || {
            let block = self.blocks.get(next as usize)?;
            next = block.above;
            Some((block.address, block.bytes, block.taken))
        })
    }

    /// Free bytes directly below and directly above the taken block at an address; `None` if none begins there.
    pub fn neighbours(&self, address: u64) -> Option<(u64, u64)> {
        let slot = self.slot_of(address).ok()?;
        Some(self.free_beside(slot))
    }

    /// Whether all that the pool relies on holds: blocks side by side from 0 to the capacity, no two free ones
    /// touching, both trees right, every count the sum of its parts. Takes O(n log n).
    ///
    /// # Errors
    /// What does not hold.
    pub fn check(&self) -> Result<(), String> {
        let (mut order, mut free) = (Vec::new(), Vec::new());
        let (mut end, mut taken, mut below) = (0, 0, NIL);
        let mut next = self.lowest;
        while next != NIL {
            let block = &self.blocks[next as usize];
            if block.address != end || block.below != below || block.bytes == 0 {
                return Err(format!(
                    "the block at {:#x} does not follow {end:#x}",
                    block.address
                ));
            }
            if (block.address | block.bytes) % self.alignment != 0 {
                return Err(format!("the block at {:#x} is not aligned", block.address));
            }
            if !block.taken && below != NIL && !self.blocks[below as usize].taken {
                return Err(format!("free blocks touch at {:#x}", block.address));
            }
            self.check_keys(next)?;
            if block.taken {
                taken += block.bytes;
            } else {
                free.push((block.bytes, block.address, next));
            }
            order.push(next);
            end = block.address + block.bytes;
            (below, next) = (next, block.above);
        }
        free.sort_unstable();
        let free: Vec<u32> = free.into_iter().map(|(.., slot)| slot).collect();
        match () {
            () if end != self.capacity => Err(format!(
                "blocks end at {end:#x}, the arena at {:#x}",
                self.capacity
            )),
            () if taken != self.taken => Err(format!(
                "{taken} bytes are taken, counted are {}",
                self.taken
            )),
            () if self.taken > self.high_water => {
                Err(format!("{taken} bytes are above the high water"))
            }
            () if self.by_address.check()? != order => {
                Err("the tree by address has other blocks".into())
            }
            () if self.by_size.check()? != free => Err("the tree by size has other blocks".into()),
            () if order.len() + self.spare.len() != self.blocks.len() => {
                Err("slots were lost".into())
            }
            () => Ok(()),
        }
    }

    /// The slot of the lowest block, [`NIL`] in an arena of 0 bytes.
    pub(crate) fn lowest(&self) -> u32 {
        self.lowest
    }

    /// The block of a slot that is in use.
    pub(crate) fn block(&self, slot: u32) -> &Block {
        &self.blocks[slot as usize]
    }

    /// The slot of the taken block at an address. It stays the same as long as the block is taken.
    pub(crate) fn taken_at(&self, address: u64) -> Option<u32> {
        self.slot_of(address).ok()
    }

    /// The block that an address lies in and those next to it, beyond a free one if that lies between; of these, the
    /// taken ones.
    pub(crate) fn taken_around(&self, address: u64) -> [Option<u32>; 3] {
        let Ok(at) = self.slot_around(address) else {
            return [None; 3];
        };
        let taken = |slot: u32| {
            let block = self.blocks.get(slot as usize)?;
            block.taken.then_some(slot)
        };
        let beyond = |next: fn(&Block) -> u32| {
            let first = next(self.block(at));
            let between = self.blocks.get(first as usize);
            taken(first).or_else(|| taken(next(between?)))
        };
        [
            beyond(|block| block.below),
            taken(at),
            beyond(|block| block.above),
        ]
    }

    /// The free block that an address lies in: its own address and bytes.
    pub(crate) fn free_around(&self, address: u64) -> Option<(u64, u64)> {
        let block = &self.blocks[self.slot_around(address).ok()? as usize];
        (!block.taken).then_some((block.address, block.bytes))
    }

    fn check_keys(&self, slot: u32) -> Result<(), String> {
        let block = &self.blocks[slot as usize];
        let weight = if block.taken { 0 } else { block.bytes };
        let by_address = (self.by_address.key(slot), self.by_address.weight(slot));
        let sized = block.taken || self.by_size.key(slot) == (block.bytes, block.address);
        if !sized || by_address != ((block.address, 0), weight) {
            return Err(format!(
                "the trees know the block at {:#x} as another",
                block.address
            ));
        }
        Ok(())
    }

    /// Whole units of the alignment, at least one; `None` beyond the capacity.
    fn rounded(&self, bytes: u64) -> Option<u64> {
        let bytes = bytes.max(1);
        (bytes <= self.capacity).then(|| (bytes + self.alignment - 1) & !(self.alignment - 1))
    }

    /// The smallest free block of so many bytes or more.
    fn smallest(&self, bytes: u64, side: Side) -> Option<u32> {
        let lowest = self.by_size.ceiling((bytes, 0))?;
        match side {
            Side::Low => Some(lowest),
            Side::High => self.by_size.floor((self.by_size.key(lowest).0, u64::MAX)),
        }
    }

    /// The block that an address lies in.
    fn slot_around(&self, address: u64) -> Result<u32, PoolError> {
        let capacity = self.capacity;
        match self.by_address.floor((address, 0)) {
            Some(slot) if address < capacity => Ok(slot),
            _ => Err(PoolError::Outside { address, capacity }),
        }
    }

    /// The taken block that begins at an address.
    fn slot_of(&self, address: u64) -> Result<u32, PoolError> {
        let slot = self.slot_around(address)?;
        let block = &self.blocks[slot as usize];
        match block.taken {
            true if block.address == address => Ok(slot),
            true => Err(PoolError::Inside {
                address,
                block: block.address,
            }),
            false => Err(PoolError::Free { address }),
        }
    }

    fn free_beside(&self, slot: u32) -> (u64, u64) {
        let free = |slot: u32| match self.blocks.get(slot as usize) {
            Some(block) if !block.taken => block.bytes,
            _ => 0,
        };
        let block = &self.blocks[slot as usize];
        (free(block.below), free(block.above))
    }

    /// Moves the end up.
    fn extend(&mut self, capacity: u64) {
        let more = capacity - self.capacity;
        let top = self.by_address.floor((u64::MAX, 0)).unwrap_or(NIL);
        let free = self.blocks.get(top as usize).filter(|block| !block.taken);
        match free.map(|block| block.bytes) {
            _ if more == 0 => {}
            Some(bytes) => {
                self.by_size.remove(top);
                self.resize_free(top, bytes + more);
            }
            None => {
                self.add(Block {
                    address: self.capacity,
                    bytes: more,
                    taken: false,
                    below: top,
                    above: NIL,
                });
            }
        }
        self.capacity = capacity;
    }

    /// Takes `bytes` at `address` out of a free block; what is left of it on either side stays free.
    fn carve(&mut self, free: u32, address: u64, bytes: u64) {
        let whole = self.blocks[free as usize];
        let below = address - whole.address;
        let above = whole.bytes - below - bytes;
        self.by_size.remove(free);
        let slot = match below {
            0 => {
                self.blocks[free as usize].bytes = bytes;
                self.blocks[free as usize].taken = true;
                self.by_address.set_weight(free, 0);
                free
            }
            _ => {
                self.resize_free(free, below);
                self.add(Block {
                    address,
                    bytes,
                    taken: true,
                    below: free,
                    above: whole.above,
                })
            }
        };
        if above > 0 {
            self.add(Block {
                address: address + bytes,
                bytes: above,
                taken: false,
                below: slot,
                above: whole.above,
            });
        }
        self.taken += bytes;
        self.high_water = self.high_water.max(self.taken);
    }

    /// A taken block becomes free, and one with the free blocks that it touches.
    fn give_back(&mut self, slot: u32) {
        let Block {
            bytes,
            below,
            above,
            ..
        } = self.blocks[slot as usize];
        self.taken -= bytes;
        let mut whole = slot;
        let mut together = bytes;
        self.blocks[slot as usize].taken = false;
        for (low, high) in [(slot, above), (below, slot)] {
            let other = if low == slot { high } else { low };
            let Some(block) = self.blocks.get(other as usize).filter(|block| !block.taken) else {
                continue;
            };
            together += block.bytes;
            self.by_size.remove(other);
            self.drop_slot(high);
            whole = low;
        }
        self.resize_free(whole, together);
    }

    /// Sets the size of a free block that is not in the tree by size.
    fn resize_free(&mut self, slot: u32, bytes: u64) {
        let address = self.blocks[slot as usize].address;
        self.blocks[slot as usize].bytes = bytes;
        self.by_address.set_weight(slot, bytes);
        self.by_size.insert(slot, (bytes, address), 0);
    }

    /// Adds a block between its neighbours.
    fn add(&mut self, block: Block) -> u32 {
        let slot = match self.spare.pop() {
            Some(slot) => {
                self.blocks[slot as usize] = block;
                slot
            }
            None => {
                self.blocks.push(block);
                (self.blocks.len() - 1) as u32
            }
        };
        self.link(block.below, slot);
        self.link(slot, block.above);
        let weight = if block.taken { 0 } else { block.bytes };
        self.by_address.insert(slot, (block.address, 0), weight);
        if !block.taken {
            self.by_size.insert(slot, (block.bytes, block.address), 0);
        }
        slot
    }

    /// Takes a block out of the list and the tree by address.
    fn drop_slot(&mut self, slot: u32) {
        let Block { below, above, .. } = self.blocks[slot as usize];
        self.link(below, above);
        self.by_address.remove(slot);
        self.spare.push(slot);
    }

    fn link(&mut self, below: u32, above: u32) {
        match below {
            NIL => self.lowest = above,
            below => self.blocks[below as usize].above = above,
        }
        if above != NIL {
            self.blocks[above as usize].below = below;
        }
    }
}

impl Side {
    fn branch(self) -> Branch {
        match self {
            Side::Low => Branch::First,
            Side::High => Branch::Last,
        }
    }
}
