//! Addresses reserved from the system; pages come when they are first written to.

use std::ffi::c_void;
use std::ptr::null_mut;

/// A stretch of private memory, which stays reserved as long as the process lives. A forked child has its own copy,
/// page by page as either side writes.
pub struct Mapping {
    mapped: *mut c_void,
    length: usize,
    start: *mut u8,
}

// SAFETY: the pointers are addresses of memory that belongs to the process and to no thread. The methods follow
// neither.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Reserves at least so many bytes from a multiple of `alignment` on, a power of two. `None` if the system has not
    /// as many.
    pub fn reserve(bytes: u64, alignment: u64) -> Option<Mapping> {
        // A mapping starts at a page; for more, room to move is reserved too.
        let length = usize::try_from(bytes.checked_add(alignment)?).ok()?;
        // SAFETY: a new mapping at an address of the system's choice changes no mapping that exists.
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

    /// Forgets the contents, which take no memory until something is written again. No block of the mapping is in use.
    pub fn give_pages_back(&self) {
        // SAFETY: the range is the one that `reserve` mapped. The arena calls this when no block of it is in use, so
        // nobody reads contents that are lost.
        unsafe { libc::madvise(self.mapped, self.length, libc::MADV_DONTNEED) };
    }

    /// Whether an address lies in the mapping.
    pub fn holds(&self, address: *const c_void) -> bool {
        (address as usize).wrapping_sub(self.start as usize) < self.bytes()
    }
}
