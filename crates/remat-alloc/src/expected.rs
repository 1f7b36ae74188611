//! Blocks kept for a thread that chose the places of its next allocations. Evictions are planned for these places, and
//! temporaries must not take them first.

use std::cell::Cell;

use remat_core::pool::PoolError;

use crate::placement::Placement;
use crate::region::Region;

/// A block that is taken in the pool and belongs to no caller yet.
struct Kept {
    thread: usize,
    address: u64,
    /// Rounded to the alignment.
    bytes: u64,
    /// Allocations of so many bytes that go elsewhere before it is handed out.
    passes: u32,
}

/// The kept blocks of all threads, in the order in which they were asked for.
#[derive(Default)]
pub struct Expected {
    kept: Vec<Kept>,
    /// Blocks that were handed out. One that is freed is kept again: it went to a temporary.
    lent: Vec<Kept>,
    /// Allocations since the first of the blocks was kept.
    log: Vec<Allocated>,
}

/// An allocation of a thread for which blocks were kept.
struct Allocated {
    thread: usize,
    address: u64,
    bytes: u64,
}

/// Allocations that are remembered.
const MOST_LOGGED: usize = 256;

thread_local! {
    // Constant, without a destructor: see `placement`.
    static KEPT: Cell<usize> = const { Cell::new(0) };
    /// Whether this thread's allocations are remembered: blocks were kept for it, and not given back since.
    static LOGS: Cell<bool> = const { Cell::new(false) };
}

/// Whether anything is kept for the calling thread.
#[inline]
pub fn any() -> bool {
    KEPT.with(Cell::get) > 0
}

/// Whether the calling thread's allocations are remembered.
#[inline]
pub fn logs() -> bool {
    LOGS.with(Cell::get)
}

/// A number of the calling thread, which no other has while it lives.
fn this_thread() -> usize {
    KEPT.with(|kept| std::ptr::from_ref(kept) as usize)
}

impl Expected {
    /// Takes the block at an address for the calling thread. It is handed out once as many allocations of its size
    /// passed.
    ///
    /// # Errors
    /// As [`Region::take_at`].
    pub fn keep(
        &mut self,
        region: &mut Region,
        address: u64,
        bytes: u64,
        passes: u32,
    ) -> Result<(), PoolError> {
        if self.kept.is_empty() && self.lent.is_empty() {
            self.log.clear();
        }
        region.take_at(address, bytes)?;
        self.kept.push(Kept {
            thread: this_thread(),
            address,
            bytes: region.size_of(address).unwrap_or(bytes),
            passes,
        });
        KEPT.with(|kept| kept.set(kept.get() + 1));
        LOGS.with(|logs| logs.set(true));
        Ok(())
    }

    /// Whether a block of so many bytes is kept for the calling thread.
    pub fn has(&self, region: &Region, bytes: u64, alignment: u64) -> bool {
        let of_size = OfSize::new(region, bytes, alignment);
        of_size.is_some_and(|of_size| self.kept.iter().any(|kept| of_size.is(kept)))
    }

    /// Takes a block for the calling thread: the first of so many bytes that is kept for it and that as many
    /// allocations passed as were to, or else any. `None` if there is none. Then nothing was passed: it may be asked
    /// for again.
    pub fn take(
        &mut self,
        region: &mut Region,
        bytes: u64,
        alignment: u64,
        placement: Placement,
    ) -> Option<u64> {
        let kept = self.claim(region, bytes, alignment);
        let taken = kept.or_else(|| region.take(bytes, alignment, placement))?;
        self.pass(region, bytes, alignment);
        Some(taken)
    }

    fn claim(&mut self, region: &Region, bytes: u64, alignment: u64) -> Option<u64> {
        let of_size = OfSize::new(region, bytes, alignment)?;
        let is_due = |kept: &Kept| of_size.is(kept) && kept.passes == 0;
        let at = self.kept.iter().position(is_due)?;
        KEPT.with(|kept| kept.set(kept.get() - 1));
        let kept = self.kept.remove(at);
        let address = kept.address;
        self.lent.push(kept);
        Some(address)
    }

    /// The calling thread took a block of so many bytes, which passes those that are kept for later ones.
    fn pass(&mut self, region: &Region, bytes: u64, alignment: u64) {
        let Some(of_size) = OfSize::new(region, bytes, alignment) else {
            return;
        };
        for kept in self.kept.iter_mut().filter(|kept| of_size.is(kept)) {
            kept.passes = kept.passes.saturating_sub(1);
        }
    }

    /// A block was freed: one that was handed out is kept again.
    pub fn freed(&mut self, region: &mut Region, address: u64) {
        let thread = this_thread();
        let lent = |kept: &Kept| (kept.thread, kept.address) == (thread, address);
        let Some(at) = self.lent.iter().position(lent) else {
            return;
        };
        let kept = self.lent.swap_remove(at);
        if region.take_at(address, kept.bytes).is_ok() {
            self.kept.push(kept);
            KEPT.with(|kept| kept.set(kept.get() + 1));
        }
    }

    /// Remembers an allocation of the calling thread.
    pub fn note(&mut self, region: &Region, address: u64) {
        if self.log.len() < MOST_LOGGED {
            self.log.push(Allocated {
                thread: this_thread(),
                address,
                bytes: region.size_of(address).unwrap_or(0),
            });
        }
    }

    /// How many allocations of its size came before the latest one at an address, since blocks were kept; of all of
    /// them, if none was there. And whether one was.
    pub fn passes(&self, region: &Region, address: u64, bytes: u64) -> (u32, bool) {
        let bytes = bytes.max(1).next_multiple_of(region.alignment());
        let own = |one: &&Allocated| (one.thread, one.bytes) == (this_thread(), bytes);
        let of_size: Vec<u64> = self.log.iter().filter(own).map(|one| one.address).collect();
        let last = of_size.iter().rposition(|&at| at == address);
        (last.unwrap_or(of_size.len()) as u32, last.is_some())
    }

    /// Gives back all blocks kept for the calling thread. Returns their number.
    pub fn give_back(&mut self, region: &mut Region) -> usize {
        let thread = this_thread();
        let before = self.kept.len();
        self.lent.retain(|lent| lent.thread != thread);
        self.kept.retain(|kept| {
            let mine = kept.thread == thread;
            if mine {
                let given = region.give(kept.address);
                debug_assert!(given.is_ok(), "{given:?}");
            }
            !mine
        });
        KEPT.with(|kept| kept.set(0));
        LOGS.with(|logs| logs.set(false));
        before - self.kept.len()
    }
}

/// The calling thread's blocks of a size.
struct OfSize {
    thread: usize,
    bytes: u64,
    alignment: u64,
}

impl OfSize {
    fn new(region: &Region, bytes: u64, alignment: u64) -> Option<OfSize> {
        Some(OfSize {
            thread: this_thread(),
            bytes: bytes.max(1).checked_next_multiple_of(region.alignment())?,
            alignment,
        })
    }

    fn is(&self, kept: &Kept) -> bool {
        (kept.thread, kept.bytes) == (self.thread, self.bytes) && kept.address % self.alignment == 0
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
        expected.keep(&mut region, 0x1800, 100, 0).unwrap();
        expected.keep(&mut region, 0x1400, 128, 0).unwrap();
        let taken = PoolError::Taken {
            address: 0x800,
            bytes: 64,
        };
        assert_eq!(expected.keep(&mut region, 0x1800, 64, 0), Err(taken));
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

    #[test]
    fn what_a_temporary_got_is_kept_again_when_it_is_freed() {
        let mut region = Region::new(0x1000, Pool::new(4096, 64).unwrap());
        let mut expected = Expected::default();
        expected.keep(&mut region, 0x1800, 128, 0).unwrap();
        for _ in 0..2 {
            assert_eq!(expected.claim(&region, 128, 64), Some(0x1800));
            assert_eq!(expected.claim(&region, 128, 64), None);
            region.give(0x1800).unwrap();
            expected.freed(&mut region, 0x1800);
        }
        assert_eq!(expected.give_back(&mut region), 1);
        assert_eq!(region.statistics().blocks, 0);
        region.take_at(0x1800, 128).unwrap();
        region.give(0x1800).unwrap();
        expected.freed(&mut region, 0x1800);
        assert_eq!(region.statistics().blocks, 0);
    }

    #[test]
    fn allocations_pass_a_block_that_is_kept_for_a_later_one() {
        let mut region = Region::new(0x1000, Pool::new(4096, 64).unwrap());
        let mut expected = Expected::default();
        expected.keep(&mut region, 0x1800, 128, 2).unwrap();
        expected.keep(&mut region, 0x1400, 128, 0).unwrap();
        let mut take = || expected.take(&mut region, 128, 64, USUAL).unwrap();
        let taken = [take(), take(), take(), take()];
        assert_eq!((taken[0], taken[2]), (0x1400, 0x1800));
    }

    #[test]
    fn an_allocation_that_finds_no_room_passes_nothing() {
        let mut region = Region::new(0x1000, Pool::new(512, 64).unwrap());
        let mut expected = Expected::default();
        expected.keep(&mut region, 0x1000, 128, 1).unwrap();
        region.take_at(0x1080, 384).unwrap();
        let mut take = |region: &mut Region| expected.take(region, 128, 64, USUAL);
        assert_eq!([take(&mut region), take(&mut region)], [None, None]);
        // Somebody makes room.
        region.give(0x1080).unwrap();
        assert_eq!(take(&mut region), Some(0x1080));
        assert_eq!(take(&mut region), Some(0x1000));
    }

    #[test]
    fn an_allocation_is_known_by_how_many_of_its_size_came_before() {
        let mut region = Region::new(0x1000, Pool::new(4096, 64).unwrap());
        let mut expected = Expected::default();
        expected.keep(&mut region, 0x1800, 128, 1).unwrap();
        let mut take = |bytes| {
            let taken = expected.take(&mut region, bytes, 64, USUAL).unwrap();
            expected.note(&region, taken);
            taken
        };
        let taken = [128, 64, 100].map(&mut take);
        assert_eq!(taken[2], 0x1800);
        assert_eq!(expected.passes(&region, taken[0], 128), (0, true));
        assert_eq!(expected.passes(&region, taken[2], 128), (1, true));
        assert_eq!(expected.passes(&region, 0x1c00, 128), (2, false));
        // The next op: what was kept for this one has been given back.
        assert_eq!(expected.give_back(&mut region), 0);
        expected.keep(&mut region, 0x1c00, 128, 0).unwrap();
        let known = expected.passes(&region, taken[0], 128);
        assert_eq!(known, (0, false), "forgotten");
    }
}
