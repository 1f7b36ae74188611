//! The C functions of `remat_arena.h` for CUDA devices.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;

use super::functions::{CudaFunctions, Stream};
use super::{raise, spaces};
use crate::evictor::MakeRoom;
use crate::exports::verdict;
use crate::region::Statistics;
use crate::report;
use crate::setting::{DEVICE_ALIGNMENT, Setting};

/// Opens the arena of a device; an alignment of 0 is the usual one. Returns 0, or a number of `errno.h` after a line on
/// stderr.
#[unsafe(no_mangle)]
pub extern "C" fn remat_cuda_open(device: c_int, bytes: u64, alignment: u64) -> c_int {
    let alignment = if alignment == 0 {
        DEVICE_ALIGNMENT
    } else {
        alignment
    };
    match spaces::open(device, Setting { bytes, alignment }) {
        Ok(()) => 0,
        Err((number, refusal)) => {
            report::line(format_args!("{refusal}"));
            number
        }
    }
}

/// Takes a block for a stream. Returns a null pointer for 0 bytes, and where there is no room.
#[unsafe(no_mangle)]
pub extern "C" fn remat_cuda_try_malloc(
    bytes: isize,
    device: c_int,
    stream: Stream,
) -> *mut c_void {
    match u64::try_from(bytes) {
        Ok(0) | Err(_) => null_mut(),
        Ok(bytes) => spaces::allocate(bytes, device, stream).unwrap_or(null_mut()),
    }
}

/// Takes a block for a stream, and throws `std::runtime_error` where there is no room: for `CUDAPluggableAllocator`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn remat_cuda_malloc(
    bytes: isize,
    device: c_int,
    stream: Stream,
) -> *mut c_void {
    let block = remat_cuda_try_malloc(bytes, device, stream);
    if block.is_null() && bytes != 0 {
        raise::out_of_memory(bytes as u64, device);
    }
    block
}

/// Gives a block back that was last used on `stream`.
#[unsafe(no_mangle)]
pub extern "C" fn remat_cuda_free(
    block: *mut c_void,
    _bytes: isize,
    device: c_int,
    stream: Stream,
) {
    if !block.is_null() && spaces::with(device, |space| space.give(block, stream)).is_none() {
        report::line(format_args!(
            "cuda free({block:p}) was ignored: device {device} has no arena"
        ));
    }
}

/// Notes that a block is used on a further stream: for `set_record_stream_fn`, which does not say whose the block is.
#[unsafe(no_mangle)]
pub extern "C" fn remat_cuda_record_stream(block: *mut c_void, stream: Stream) {
    spaces::used_on(block, stream);
}

/// Registers the function that makes room on devices; a null pointer means none.
///
/// # Safety
/// As for `remat_arena_on_exhausted`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remat_cuda_on_exhausted(
    make_room: Option<MakeRoom>,
    context: *mut c_void,
) {
    spaces::EVICTOR.register(make_room, context);
}

/// Copies a device's counts. Returns 0, or `ENOENT` if its arena is not open.
///
/// # Safety
/// `out` points to a `struct remat_arena_statistics`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remat_cuda_read(device: c_int, out: *mut Statistics) -> c_int {
    match spaces::with(device, |space| space.region().statistics()) {
        Some(statistics) => {
            // SAFETY: the caller promises that `out` points to a struct of this layout.
            unsafe { *out = statistics };
            0
        }
        None => libc::ENOENT,
    }
}

/// Starts a device's high-water mark anew from the bytes in use.
#[unsafe(no_mangle)]
pub extern "C" fn remat_cuda_restart_peak(device: c_int) {
    spaces::with(device, |space| space.region().restart_peak());
}

/// Checks all invariants. Returns 0, `ENOENT` if the device's arena is not open, or `EFAULT` with a message that names
/// the invariant that does not hold.
///
/// # Safety
/// `message` points to `length` bytes, or `length` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remat_cuda_check(
    device: c_int,
    message: *mut c_char,
    length: usize,
) -> c_int {
    // SAFETY: the caller promises `length` bytes at `message`, as `verdict` asks for.
    unsafe {
        verdict(
            spaces::with(device, |space| space.region().check()),
            message,
            length,
        )
    }
}

/// Replaces the CUDA runtime's functions, for what is opened from here on.
///
/// # Safety
/// `functions` points to a table whose functions do what those of the runtime of the same names do.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remat_cuda_substitute(functions: *const CudaFunctions) {
    // SAFETY: the caller promises that `functions` points to a table of this layout.
    spaces::substitute(unsafe { *functions });
}
