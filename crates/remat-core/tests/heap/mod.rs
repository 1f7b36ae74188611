//! Counts what a thread takes from the heap.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static BYTES: Cell<i64> = const { Cell::new(0) };
}

/// Counts a block that this thread took, or gave back.
fn count(blocks: u64, bytes: i64) {
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + blocks));
    let _ = BYTES.try_with(|count| count.set(count.get() + bytes));
}

// SAFETY: every call goes to the system's allocator as it came; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size() as i64);
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(0, -(layout.size() as i64));
        // SAFETY: as above; all blocks come from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(1, size as i64 - layout.size() as i64);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static HEAP: Counting = Counting;

/// Bytes that this thread took and has not given back.
#[allow(dead_code)] // one of the two tests asks for it
pub fn bytes() -> i64 {
    BYTES.with(Cell::get)
}

/// Blocks that this thread took or moved.
pub fn allocations() -> u64 {
    ALLOCATIONS.with(Cell::get)
}
