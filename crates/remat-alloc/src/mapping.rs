//! Addresses reserved from the system; pages come when they are first written to.

use std::ffi::c_void;
use std::ptr::null_mut;

/// A stretch of private memory: a forked child has its own copy, page by page as either side writes.
pub struct Mapping {
    mapped: *mut c_void,
    length: usize,
    start: *mut u8,
}

// SAFETY: the pointers are addresses of memory that belongs to the process; no thread owns it.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Reserves at least so many bytes that start at a multiple of `alignment`, a power of two; `None` if the system has not as many.
    pub fn reserve(bytes: u64, alignment: u64) -> Option<Mapping> {
        // A mapping starts at a page; for more, room to move is reserved too.
        let length = usize::try_from(bytes.checked_add(alignment)?).ok()?;
        // SAFETY: a new mapping at an address of the system's choice touches nothing that exists.
        let mapped = unsafe {
            libc::mmap(
                null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if mapped == libc::MAP_FAILED {
            return None;
        }
        let start = (mapped as usize).next_multiple_of(alignment as usize) as *mut u8;
        Some(Mapping {
            mapped,
            length,
            start,
        })
    }

    /// The first aligned address.
    pub fn start(&self) -> *mut u8 {
        self.start
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly what was mapped; an arena is only dropped when none of its blocks is taken.
        unsafe { libc::munmap(self.mapped, self.length) };
    }
}
