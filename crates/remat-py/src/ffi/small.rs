//! Small blocks that were freed, kept for the next tensors of their size.
//!
//! The C library searches for an aligned block, and joins a freed one with its neighbours. Here the block of the same
//! size that was freed last comes back, which is still in the processor's caches. The first bytes of a kept block are
//! the address of the next one on its list.

use std::ffi::c_void;

use super::marked::usable;

/// Torch's own alignment of tensors, in bytes. Sizes are told apart by multiples of it.
const ALIGNMENT: usize = 64;

/// Lists of blocks of the C library's, by their sizes.
pub(super) struct Small {
    /// The address of the first block of each list, 0 for none.
    first: Vec<usize>,
    /// Bytes of all blocks.
    kept: usize,
}

impl Small {
    /// Will keep blocks of fewer bytes than these.
    pub(super) fn below(bytes: usize) -> Small {
        Small {
            first: vec![0; bytes / ALIGNMENT],
            kept: 0,
        }
    }

    /// Bytes of the blocks that are kept.
    #[inline]
    pub(super) fn kept(&self) -> u64 {
        self.kept as u64
    }

    /// A block of at least so many bytes, if one of that size is kept.
    #[inline]
    pub(super) fn take(&mut self, bytes: usize) -> Option<*mut c_void> {
        self.pop(bytes.div_ceil(ALIGNMENT))
    }

    #[inline]
    fn pop(&mut self, list: usize) -> Option<*mut c_void> {
        let first = self.first.get_mut(list).filter(|first| **first != 0)?;
        let block = *first as *mut usize;
        // SAFETY: the block is this list's alone, as `keep` was promised, which wrote the next one's address there.
        *first = unsafe { block.read() };
        self.kept -= list * ALIGNMENT;
        Some(block.cast())
    }

    /// Keeps a block, unless it is large or not aligned, or more than so many bytes would be kept. Whether it does.
    ///
    /// # Safety
    /// The block is the C library's, which tells sizes, and nobody else uses it or frees it from now on, if it is kept.
    #[inline]
    pub(super) unsafe fn keep(&mut self, block: *mut c_void, most: u64) -> bool {
        // SAFETY: as the caller promises.
        let list = unsafe { usable(block) } / ALIGNMENT;
        let bytes = list * ALIGNMENT;
        let Some(first) = self.first.get_mut(list).filter(|_| list > 0) else {
            return false;
        };
        if block as usize % ALIGNMENT != 0 || (self.kept + bytes) as u64 > most {
            return false;
        }
        // SAFETY: the block has at least 64 bytes, which are this list's from now on.
        unsafe { block.cast::<usize>().write(*first) };
        *first = block as usize;
        self.kept += bytes;
        true
    }

    /// Gives blocks back to the C library until no more than so many bytes are kept.
    #[inline]
    pub(super) fn trim(&mut self, most: u64) {
        if self.kept() > most {
            self.give_back(most);
        }
    }

    #[cold]
    fn give_back(&mut self, most: u64) {
        for list in (1..self.first.len()).rev() {
            while self.kept() > most {
                let Some(block) = self.pop(list) else { break };
                // SAFETY: it is the C library's, and nobody else's, as `keep` was promised.
                unsafe { libc::free(block) };
            }
        }
    }
}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use super::super::marked::allocate;
    use super::Small;

    #[test]
    fn the_block_freed_last_comes_back_for_the_same_size() {
        let mut small = Small::below(1024);
        let blocks = [100, 120, 500].map(|bytes| allocate(bytes).unwrap());
        for block in blocks {
            // SAFETY: the C library's, which tells sizes, and nobody uses it.
            assert!(unsafe { small.keep(block, 1 << 20) });
        }
        assert_eq!(small.kept(), 128 + 128 + 512);
        let [first, second, large] = blocks;
        assert_eq!(small.take(128), Some(second));
        assert_eq!(small.take(65), Some(first));
        assert_eq!((small.take(128), small.take(64)), (None, None));
        assert_eq!((small.take(512), small.kept()), (Some(large), 0));
        for block in blocks {
            // SAFETY: as above; none is kept any more.
            unsafe { libc::free(block) };
        }
    }

    #[test]
    fn large_blocks_and_too_many_are_not_kept() {
        let mut small = Small::below(1024);
        let blocks = [2000, 500, 400].map(|bytes| allocate(bytes).unwrap());
        // SAFETY: the C library's, which tells sizes, and nobody uses it.
        let kept = blocks.map(|block| unsafe { small.keep(block, 600) });
        assert_eq!(kept, [false, true, false]);
        small.trim(512);
        assert_eq!(small.kept(), 512);
        small.trim(0);
        assert_eq!((small.kept(), small.take(500)), (0, None));
        for block in [blocks[0], blocks[2]] {
            // SAFETY: the second one was given back.
            unsafe { libc::free(block) };
        }
    }
}
