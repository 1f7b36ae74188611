//! One stretch of memory, and the pool that assigns its blocks.

use remat_core::pool::{Pool, PoolError};

#[cfg(feature = "checker")]
use crate::checker::{Ledger, Taken};
use crate::placement::Placement;

/// Memory from which blocks are taken. Addresses are absolute here. The region itself reads and writes none of them.
pub struct Region {
    base: u64,
    pool: Pool,
    counts: Counts,
    #[cfg(feature = "checker")]
    ledger: Ledger,
}

/// Events since the region was made, for [`Statistics`].
#[derive(Default)]
struct Counts {
    peak: u64,
    blocks: u64,
    allocations: u64,
    frees: u64,
    exhaustions: u64,
    refusals: u64,
    spills: u64,
    wrong_frees: u64,
    fragmentation_sum: f64,
    fragmentation_max: f64,
}

/// `struct remat_arena_statistics` of `remat_arena.h`, which documents the fields.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[allow(missing_docs)] // documented in the header
pub struct Statistics {
    pub capacity: u64,
    pub in_use: u64,
    pub high_water: u64,
    pub free_bytes: u64,
    pub largest_free: u64,
    pub blocks: u64,
    pub allocations: u64,
    pub frees: u64,
    pub exhaustions: u64,
    pub refusals: u64,
    pub spills: u64,
    pub wrong_frees: u64,
    pub fragmentation_mean: f64,
    pub fragmentation_max: f64,
}

/// `struct remat_arena_block` of `remat_arena.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // documented in the header
pub struct Block {
    pub address: u64,
    pub bytes: u64,
    pub taken: bool,
}

impl Region {
    /// A region without blocks from `base` on, which is a multiple of the pool's alignment.
    pub fn new(base: u64, pool: Pool) -> Region {
        Region {
            base,
            pool,
            counts: Counts::default(),
            #[cfg(feature = "checker")]
            ledger: Ledger::default(),
        }
    }

    /// The first address.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Its size in bytes.
    pub fn capacity(&self) -> u64 {
        self.pool.capacity()
    }

    /// The alignment of its blocks, in bytes.
    pub fn alignment(&self) -> u64 {
        self.pool.alignment()
    }

    /// Whether no block is taken.
    pub fn is_empty(&self) -> bool {
        self.counts.blocks == 0
    }

    /// The number of blocks given back so far.
    pub fn frees(&self) -> u64 {
        self.counts.frees
    }

    /// Takes a block whose address is a multiple of `alignment`, a power of two; `None` if no free block holds it.
    pub fn take(&mut self, bytes: u64, alignment: u64, placement: Placement) -> Option<u64> {
        let offset = if alignment <= self.pool.alignment() {
            self.pool.allocate(bytes, placement.fit, placement.side)?
        } else {
            self.take_aligned(bytes, alignment, placement)?
        };
        self.counts.blocks += 1;
        self.counts.allocations += 1;
        self.counts.peak = self.counts.peak.max(self.in_use());
        #[cfg(feature = "checker")]
        self.check_taken(offset, bytes, alignment);
        Some(self.base + offset)
    }

    /// Takes the block at an address.
    ///
    /// # Errors
    /// As [`Pool::allocate_at`].
    pub fn take_at(&mut self, address: u64, bytes: u64) -> Result<(), PoolError> {
        let offset = address.wrapping_sub(self.base);
        self.pool.allocate_at(offset, bytes)?;
        self.counts.blocks += 1;
        self.counts.allocations += 1;
        self.counts.peak = self.counts.peak.max(self.in_use());
        #[cfg(feature = "checker")]
        self.check_taken(offset, bytes, self.pool.alignment());
        Ok(())
    }

    #[cfg(feature = "checker")]
    fn check_taken(&mut self, offset: u64, bytes: u64, alignment: u64) {
        let block = Taken {
            address: self.base + offset,
            offset,
            bytes,
            alignment,
        };
        self.ledger.taken(&self.pool, block);
    }

    /// Takes a block with an alignment beyond the pool's: the aligned part of a free block that is large enough for any
    /// position.
    fn take_aligned(&mut self, bytes: u64, alignment: u64, placement: Placement) -> Option<u64> {
        let spare = alignment - self.pool.alignment();
        let found = self
            .pool
            .allocate(bytes.checked_add(spare)?, placement.fit, placement.side)?;
        let aligned = (self.base + found).next_multiple_of(alignment) - self.base;
        let moved = self
            .pool
            .free(found)
            .and_then(|_| self.pool.allocate_at(aligned, bytes));
        debug_assert!(
            moved.is_ok(),
            "the aligned part of a block that was just free"
        );
        moved.ok().map(|()| aligned)
    }

    /// Gives the block at an address back; returns its bytes.
    ///
    /// # Errors
    /// As [`Pool::free`]; it is counted, and nothing else changes.
    pub fn give(&mut self, address: u64) -> Result<u64, PoolError> {
        let offset = address.wrapping_sub(self.base);
        let given = self.pool.free(offset);
        match given {
            Ok(_) => {
                self.counts.blocks -= 1;
                self.counts.frees += 1;
            }
            Err(_) => self.counts.wrong_frees += 1,
        }
        #[cfg(feature = "checker")]
        self.ledger.given(&self.pool, offset, given);
        given
    }

    /// Bytes of the taken block at an address.
    pub fn size_of(&self, address: u64) -> Option<u64> {
        self.pool.size_of(address.wrapping_sub(self.base))
    }

    /// All blocks, free ones too, side by side in address order.
    pub fn blocks(&self) -> impl Iterator<Item = Block> + '_ {
        let blocks = self.pool.blocks();
        blocks.map(|(offset, bytes, taken)| Block {
            address: self.base + offset,
            bytes,
            taken,
        })
    }

    /// Notes that there was no room. Coop measures fragmentation at this moment: free bytes over all bytes (section
    /// 4.1).
    pub fn exhausted(&mut self) {
        let fragmentation = self.pool.free_bytes() as f64 / self.pool.capacity() as f64;
        self.counts.exhaustions += 1;
        self.counts.fragmentation_sum += fragmentation;
        self.counts.fragmentation_max = self.counts.fragmentation_max.max(fragmentation);
    }

    /// Notes that a request was refused for good.
    pub fn refused(&mut self) {
        self.counts.refusals += 1;
    }

    /// Notes that the system served a request for want of room.
    pub fn spilled(&mut self) {
        self.counts.spills += 1;
    }

    /// Starts the high-water mark anew from the bytes in use.
    pub fn restart_peak(&mut self) {
        self.counts.peak = self.in_use();
    }

    fn in_use(&self) -> u64 {
        self.pool.capacity() - self.pool.free_bytes()
    }

    /// All counts.
    pub fn statistics(&self) -> Statistics {
        let counts = &self.counts;
        Statistics {
            capacity: self.pool.capacity(),
            in_use: self.in_use(),
            high_water: counts.peak,
            free_bytes: self.pool.free_bytes(),
            largest_free: self.pool.largest_free(),
            blocks: counts.blocks,
            allocations: counts.allocations,
            frees: counts.frees,
            exhaustions: counts.exhaustions,
            refusals: counts.refusals,
            spills: counts.spills,
            wrong_frees: counts.wrong_frees,
            fragmentation_mean: counts.fragmentation_sum / counts.exhaustions.max(1) as f64,
            fragmentation_max: counts.fragmentation_max,
        }
    }

    /// Checks the pool's invariants and the counts, in time proportional to the number of blocks.
    ///
    /// # Errors
    /// The invariant that does not hold.
    pub fn check(&self) -> Result<(), String> {
        self.pool.check()?;
        let taken = self.pool.blocks().filter(|&(.., taken)| taken).count() as u64;
        if taken != self.counts.blocks {
            return Err(format!(
                "{taken} blocks are taken, counted are {}",
                self.counts.blocks
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::USUAL;

    #[test]
    fn an_alignment_beyond_the_pools_wastes_nothing() {
        let mut region = Region::new(0x10040, Pool::new(1 << 16, 64).unwrap());
        let page = region.take(100, 4096, USUAL).unwrap();
        assert_eq!(page % 4096, 0);
        assert_eq!(region.statistics().in_use, 128);
        let absurd = region.take(100, 1 << 62, USUAL);
        assert_eq!(absurd, None);
        assert_eq!(region.check(), Ok(()));
    }

    #[test]
    fn fragmentation_is_what_was_free_when_there_was_no_room() {
        let mut region = Region::new(0, Pool::new(1024, 64).unwrap());
        region.take(768, 64, USUAL).unwrap();
        assert_eq!(region.take(512, 64, USUAL), None);
        region.exhausted();
        region.take(256, 64, USUAL).unwrap();
        region.exhausted();
        let seen = region.statistics();
        assert_eq!(
            (seen.fragmentation_mean, seen.fragmentation_max),
            (0.125, 0.25)
        );
        assert_eq!((seen.exhaustions, seen.high_water), (2, 1024));
    }

    #[test]
    #[cfg(not(feature = "checker"))] // which ends the process
    fn wrong_frees_are_counted_and_change_nothing() {
        let mut region = Region::new(4096, Pool::new(1024, 64).unwrap());
        let block = region.take(128, 64, USUAL).unwrap();
        for wrong in [block + 64, block + 1, block + 128, 0, u64::MAX] {
            assert!(region.give(wrong).is_err(), "{wrong:#x}");
        }
        assert_eq!(region.give(block), Ok(128));
        assert!(region.give(block).is_err());
        assert_eq!((region.statistics().wrong_frees, region.frees()), (6, 1));
        assert_eq!(region.check(), Ok(()));
    }
}
