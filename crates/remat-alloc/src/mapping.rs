//! Addresses reserved from the system; pages come when they are first written to.

use std::ffi::c_void;
use std::ptr::null_mut;

/// A stretch of private memory, which stays reserved as long as the process lives: a forked child has its own copy, page by page as either side writes.
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

    /// Bytes from there on.
    pub fn bytes(&self) -> usize {
        self.length - (self.start as usize - self.mapped as usize)
    }

    /// Whether so many bytes fit in, at a multiple of `alignment`.
    pub fn fits(&self, bytes: u64, alignment: u64) -> bool {
        bytes <= self.bytes() as u64 && self.start as u64 % alignment == 0
    }

    /// What was written is forgotten, and takes no memory until something is written again.
    pub fn give_pages_back(&self) {
        // SAFETY: exactly what was mapped; the caller says that no block of it is in use.
        unsafe { libc::madvise(self.mapped, self.length, libc::MADV_DONTNEED) };
    }

    /// Whether an address lies in it.
    pub fn holds(&self, address: *const c_void) -> bool {
        (address as usize).wrapping_sub(self.start as usize) < self.bytes()
    }
}
