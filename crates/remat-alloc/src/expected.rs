//! Blocks kept for a thread that chose the places of its next allocations. Evictions are planned for these places, and
//! temporaries must not take them first.

use std::cell::Cell;

use remat_core::pool::PoolError;

use crate::region::Region;

/// A block that is taken in the pool and belongs to no caller yet.
struct Kept {
    thread: usize,
    address: u64,
    /// Rounded to the alignment.
    bytes: u64,
}

/// The kept blocks of all threads, in the order in which they were asked for.
#[derive(Default)]
pub struct Expected {
    kept: Vec<Kept>,
}

thread_local! {
    // Constant, without a destructor: see `placement`.
    static KEPT: Cell<usize> = const { Cell::new(0) };
}

/// Whether anything is kept for the calling thread.
#[inline]
pub fn any() -> bool {
    KEPT.with(Cell::get) > 0
}

/// A number of the calling thread, which no other has while it lives.
fn this_thread() -> usize {
    KEPT.with(|kept| std::ptr::from_ref(kept) as usize)
}

impl Expected {
    /// Takes the block at an address for the calling thread.
    ///
    /// # Errors
    /// As [`Region::take_at`].
    pub fn keep(&mut self, region: &mut Region, address: u64, bytes: u64) -> Result<(), PoolError> {
        region.take_at(address, bytes)?;
        self.kept.push(Kept {
            thread: this_thread(),
            address,
            bytes: region.size_of(address).unwrap_or(bytes),
        });
        KEPT.with(|kept| kept.set(kept.get() + 1));
        Ok(())
    }

    /// Whether a block of so many bytes is kept for the calling thread.
    pub fn has(&self, region: &Region, bytes: u64, alignment: u64) -> bool {
        self.find(region, bytes, alignment).is_some()
    }

    fn find(&self, region: &Region, bytes: u64, alignment: u64) -> Option<usize> {
        let bytes = bytes.max(1).checked_next_multiple_of(region.alignment())?;
        let thread = this_thread();
        self.kept.iter().position(|kept| {
            kept.thread == thread && kept.bytes == bytes && kept.address % alignment == 0
        })
    }

    /// Takes the first block of so many bytes that is kept for the calling thread. It belongs to the caller then.
    pub fn claim(&mut self, region: &Region, bytes: u64, alignment: u64) -> Option<u64> {
        let at = self.find(region, bytes, alignment)?;
        KEPT.with(|kept| kept.set(kept.get() - 1));
        Some(self.kept.remove(at).address)
    }

    /// Gives back all blocks kept for the calling thread. Returns their number.
    pub fn give_back(&mut self, region: &mut Region) -> usize {
        let thread = this_thread();
        let before = self.kept.len();
        self.kept.retain(|kept| {
            let mine = kept.thread == thread;
            if mine {
                let given = region.give(kept.address);
                debug_assert!(given.is_ok(), "{given:?}");
            }
            !mine
        });
        KEPT.with(|kept| kept.set(0));
        before - self.kept.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::USUAL;
    use remat_core::pool::Pool;

    #[test]
    fn what_is_kept_goes_to_the_allocation_of_its_size_and_to_no_other() {
        let mut region = Region::new(0x1000, Pool::new(4096, 64).unwrap());
        let mut expected = Expected::default();
        expected.keep(&mut region, 0x1800, 100).unwrap();
        expected.keep(&mut region, 0x1400, 128).unwrap();
        let taken = PoolError::Taken {
            address: 0x800,
            bytes: 64,
        };
        assert_eq!(expected.keep(&mut region, 0x1800, 64), Err(taken));
        assert!(any());
        assert_eq!(expected.claim(&region, 64, 64), None);
        assert_ne!(region.take(128, 64, USUAL), Some(0x1400));
        assert_eq!(expected.claim(&region, 128, 64), Some(0x1800));
        let other = std::thread::scope(|s| s.spawn(any).join().unwrap());
        assert!(!other, "another thread's");
        assert_eq!(expected.give_back(&mut region), 1);
        assert!(!any());
        #[cfg(not(feature = "checker"))] // which ends the process
        assert!(region.give(0x1400).is_err());
        assert_eq!(region.statistics().blocks, 2);
    }
}
