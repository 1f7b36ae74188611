//! The C functions of `remat_arena.h`, which documents them.

use std::ffi::{c_char, c_int, c_void};

use remat_core::pool::{Fit, Side};

use crate::arena::{self, EVICTOR};
use crate::caller;
use crate::evictor::MakeRoom;
use crate::placement::{self, Placement};
use crate::region::{Block, Statistics};
use crate::setting::{HOST_ALIGNMENT, Setting};

/// Opens the arena of this process; an alignment of 0 is the usual one. Returns 0 or a number of `errno.h`.
#[unsafe(no_mangle)]
pub extern "C" fn remat_arena_open(bytes: u64, alignment: u64) -> c_int {
    let alignment = if alignment == 0 {
        HOST_ALIGNMENT
    } else {
        alignment
    };
    match crate::start::open_if_preloaded(Setting { bytes, alignment }) {
        Ok(()) => 0,
        Err(refusal) => refusal.errno(),
    }
}

/// Leaves new blocks to the system from here on.
#[unsafe(no_mangle)]
pub extern "C" fn remat_arena_close() {
    arena::close();
}

/// Registers the function that makes room; a null pointer means none.
///
/// # Safety
/// Any thread may call the function with the context, until another one is registered and no call is under way.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remat_arena_on_exhausted(
    make_room: Option<MakeRoom>,
    context: *mut c_void,
) {
    EVICTOR.register(make_room, context);
}

/// Whether a pointer lies in the arena.
#[unsafe(no_mangle)]
pub extern "C" fn remat_arena_owns(block: *const c_void) -> bool {
    arena::owns(block)
}

/// Bytes of the block of the arena that begins there, 0 if none does.
#[unsafe(no_mangle)]
pub extern "C" fn remat_arena_size_of(block: *const c_void) -> u64 {
    arena::size_of(block).map_or(0, |bytes| bytes as u64)
}

/// The arena's first address.
#[unsafe(no_mangle)]
pub extern "C" fn remat_arena_base() -> *const c_void {
    arena::base()
}

/// Sets the place of the calling thread's next blocks. Returns 0 or `EINVAL`.
#[unsafe(no_mangle)]
pub extern "C" fn remat_arena_place(end: c_int, fit: c_int) -> c_int {
    match placement_of(end, fit) {
        Some(wanted) => {
            placement::want(wanted);
            0
        }
        None => libc::EINVAL,
    }
}

/// The placement for values of `enum remat_arena_end` and `enum remat_arena_fit`.
fn placement_of(end: c_int, fit: c_int) -> Option<Placement> {
    let side = match end {
        0 => Side::Low,
        1 => Side::High,
        _ => return None,
    };
    let fit = match fit {
        0 => Fit::First,
        1 => Fit::Best,
        _ => return None,
    };
    Some(Placement { fit, side })
}

/// Keeps the block at an address for the calling thread's next allocation of so many bytes. Returns 0, `EBUSY`,
/// `EINVAL` or `ENOENT`.
#[unsafe(no_mangle)]
pub extern "C" fn remat_arena_expect(address: u64, bytes: u64) -> c_int {
    arena::expect(address, bytes, 0)
}

/// The same for the allocation of so many bytes that comes after `passes` others. Returns 0, `EBUSY`, `EINVAL` or
/// `ENOENT`.
#[unsafe(no_mangle)]
pub extern "C" fn remat_arena_expect_after(address: u64, bytes: u64, passes: u32) -> c_int {
    arena::expect(address, bytes, passes)
}

/// How many allocations of its size the calling thread made before the one at an address, since it expected blocks.
/// Where none of the n that it made is there, -1 - n.
#[unsafe(no_mangle)]
pub extern "C" fn remat_arena_passes(address: u64, bytes: u64) -> i64 {
    match arena::passes(address, bytes) {
        (passes, true) => i64::from(passes),
        (passes, false) => -1 - i64::from(passes),
    }
}

/// Gives back the blocks that the calling thread expected in vain. Returns their number.
#[unsafe(no_mangle)]
pub extern "C" fn remat_arena_expect_no_more() -> usize {
    arena::expect_no_more()
}

/// Leaves blocks below so many bytes to the system unless they are expected. Returns the limit before.
#[unsafe(no_mangle)]
pub extern "C" fn remat_arena_small_block_limit(bytes: u64) -> u64 {
    arena::set_small_block_limit(bytes.min(usize::MAX as u64) as usize) as u64
}

/// Says whether the system serves the calling thread's allocations that find no room. Returns the answer before.
#[unsafe(no_mangle)]
pub extern "C" fn remat_arena_spill(spill: bool) -> bool {
    caller::spill(spill)
}

/// Copies the counts. Returns 0, or `ENOENT` if no arena was opened.
///
/// # Safety
/// `out` points to a `struct remat_arena_statistics`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remat_arena_read(out: *mut Statistics) -> c_int {
    match arena::with(|arena| arena.region().statistics()) {
        Some(statistics) => {
            // SAFETY: the caller promises that `out` points to a struct of this layout.
            unsafe { *out = statistics };
            0
        }
        None => libc::ENOENT,
    }
}

/// Copies the blocks in address order, as many as there are places for. Returns the number of all blocks.
///
/// # Safety
/// `out` points to `places` structs, or `places` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remat_arena_blocks(out: *mut Block, places: usize) -> usize {
    let copied = arena::with(|arena| {
        let blocks = arena.region().blocks().enumerate();
        blocks.fold(0, |_, (at, block)| {
            if at < places {
                // SAFETY: the caller promises `places` structs from `out` on, and `at` is below `places`.
                unsafe { *out.add(at) = block };
            }
            at + 1
        })
    });
    copied.unwrap_or(0)
}

/// Starts the high-water mark anew from the bytes in use.
#[unsafe(no_mangle)]
pub extern "C" fn remat_arena_restart_peak() {
    arena::restart_peak();
}

/// The bytes side by side that hold all blocks which were allocated and freed since the high-water mark was started
/// anew; 0 if that is not known.
#[unsafe(no_mangle)]
pub extern "C" fn remat_arena_span_of_temporaries() -> u64 {
    arena::span_of_temporaries()
}

/// Checks all invariants. Returns 0, `ENOENT` if no arena was opened, or `EFAULT` with a message that names the
/// invariant that does not hold.
///
/// # Safety
/// `message` points to `length` bytes, or `length` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remat_arena_check(message: *mut c_char, length: usize) -> c_int {
    // SAFETY: the caller promises `length` bytes at `message`, as `verdict` asks for.
    unsafe { verdict(arena::with(|arena| arena.region().check()), message, length) }
}

/// The result of a check, as the C functions return it.
///
/// # Safety
/// `message` points to `length` bytes, or `length` is 0.
pub unsafe fn verdict(
    checked: Option<Result<(), String>>,
    message: *mut c_char,
    length: usize,
) -> c_int {
    match checked {
        None => libc::ENOENT,
        Some(Ok(())) => 0,
        Some(Err(broken)) => {
            let kept = broken.len().min(length.saturating_sub(1));
            if length > 0 {
                // SAFETY: `kept` bytes and the zero after them are within the `length` that the caller promises.
                unsafe {
                    message
                        .cast::<u8>()
                        .copy_from_nonoverlapping(broken.as_ptr(), kept);
                    *message.add(kept) = 0;
                }
            }
            libc::EFAULT
        }
    }
}
