//! Small blocks of the C library that are [counted], with a mark behind their last byte.
//!
//! Torch frees such blocks through several functions, and calls some of them for blocks that were never counted. The
//! mark tells them apart. It is made of the block's address and goes with the block; no program is to be expected that
//! happens to write the same 64 bits there. Before it stand the bytes that were asked for.

use std::ffi::c_void;

use super::counted::{self, Kept};

/// Torch's own alignment of tensors, in bytes.
const ALIGNMENT: usize = 64;

/// The bytes that were asked for, and the mark.
type Mark = [u64; 2];
const BYTES: usize = size_of::<Mark>();

/// Differs from addresses in its upper half.
const MARK: u64 = 0x9e37_79b9_7f4a_7c15;

/// Bytes of a block, rounded as the C library gave them; 0 where it does not tell.
///
/// # Safety
/// The block is the C library's, and is there.
pub(super) unsafe fn usable(block: *mut c_void) -> usize {
    #[cfg(target_env = "gnu")]
    // SAFETY: as the caller promises.
    let bytes = unsafe { libc::malloc_usable_size(block) };
    #[cfg(not(target_env = "gnu"))]
    let bytes = {
        let _ = block;
        0
    };
    bytes
}

/// So many bytes and those of a mark; `None` without a byte.
pub(super) fn with_mark(bytes: usize) -> Option<usize> {
    bytes.checked_add(BYTES).filter(|_| bytes > 0)
}

/// A block of at least so many bytes without a mark, which has room for one; `None` where memory has run out.
pub(super) fn allocate(bytes: usize) -> Option<*mut c_void> {
    let all = bytes.max(BYTES).checked_next_multiple_of(ALIGNMENT)?;
    let mut block = std::ptr::null_mut();
    // SAFETY: the alignment is a power of two and a multiple of the size of a pointer.
    let failed = unsafe { libc::posix_memalign(&mut block, ALIGNMENT, all) };
    if failed != 0 || block.is_null() {
        return None;
    }
    // SAFETY: the block is there, and nobody's yet. One that was marked may have lain there before.
    unsafe { place(block, usable(block)).write_unaligned([0, 0]) };
    Some(block)
}

/// Marks and counts a block of which so many bytes were asked for.
///
/// # Safety
/// The block is there, and has room for the mark behind these.
pub(super) unsafe fn mark(block: *mut c_void, bytes: usize) {
    // SAFETY: as the caller promises.
    unsafe {
        let usable = usable(block);
        place(block, usable).write_unaligned([bytes as u64, MARK ^ block as u64]);
        counted::took(bytes as u64, Kept::Library);
    }
}

/// The place of the mark.
///
/// # Safety
/// The block is there, and has so many bytes, no fewer than the mark.
unsafe fn place(block: *mut c_void, usable: usize) -> *mut Mark {
    // SAFETY: as the caller promises.
    unsafe { block.cast::<u8>().add(usable - BYTES).cast() }
}

/// Counts a block no more, if it is marked.
///
/// # Safety
/// The block is the C library's, which tells sizes, and is there or null; nobody else uses its last bytes.
pub(super) unsafe fn unmark(block: *mut c_void) {
    if block.is_null() {
        return;
    }
    // SAFETY: as the caller promises.
    unsafe {
        let usable = usable(block);
        if usable < BYTES {
            return;
        }
        let mark = place(block, usable);
        let [bytes, written] = mark.read_unaligned();
        if written == MARK ^ block as u64 {
            mark.write_unaligned([0, 0]);
            counted::gave(bytes, Kept::Library);
        }
    }
}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use super::{allocate, mark, unmark, with_mark};
    use crate::ffi::counted;

    #[test]
    fn blocks_are_counted_from_when_they_are_there_until_they_are_unmarked_once() {
        assert_eq!((with_mark(0), with_mark(usize::MAX)), (None, None));
        assert!(allocate(usize::MAX).is_none());
        let before = counted::bytes();
        let block = allocate(with_mark(100).unwrap()).unwrap();
        assert_eq!(block as usize % 64, 0);
        // SAFETY: the block is there, and nobody else uses it.
        unsafe {
            unmark(block);
            assert_eq!(counted::bytes(), before);
            mark(block, 100);
            assert_eq!(counted::bytes(), before + 100);
            block.cast::<u8>().write_bytes(0xff, 100); // all that was asked for
            unmark(block);
            assert_eq!(counted::bytes(), before);
            unmark(block);
            libc::free(block);
            unmark(std::ptr::null_mut());
        }
        assert_eq!(counted::bytes(), before);
    }
}
