//! The C library's functions that this library stands in for when it is preloaded.
//!
//! `malloc` and `calloc` are not among them: they align to 16 bytes, tensors to 64, so what they give is never the arena's,
//! and neither the dynamic linker's start nor the pool's own vectors come through here. (The unit tests keep the C library's.)

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use crate::arena::set_errno;
use crate::caller::file_of;
use crate::{arena, caller, system};

/// `posix_memalign`, which gives torch its tensors.
///
/// # Safety
/// As POSIX says.
#[cfg_attr(not(test), no_mangle)]
pub unsafe extern "C" fn posix_memalign(
    out: *mut *mut c_void,
    alignment: usize,
    bytes: usize,
) -> c_int {
    if !arena::wants(bytes, alignment) {
        // SAFETY: the caller's promise.
        return unsafe { system::posix_memalign(out, alignment, bytes) };
    }
    if let Some(block) = arena::allocate(bytes, alignment) {
        // SAFETY: the caller gives a place for one pointer.
        unsafe { *out = block.as_ptr() };
        return 0;
    }
    match caller::bears_refusal() {
        true => arena::refused(),
        false => {
            arena::spilled();
            // SAFETY: the caller's promise.
            unsafe { system::posix_memalign(out, alignment, bytes) }
        }
    }
}

/// `aligned_alloc`.
///
/// # Safety
/// As C says.
#[cfg_attr(not(test), no_mangle)]
pub unsafe extern "C" fn aligned_alloc(alignment: usize, bytes: usize) -> *mut c_void {
    match arena::wants(bytes, alignment) {
        true => from_arena(alignment, bytes),
        // SAFETY: the caller's promise.
        false => unsafe { system::aligned_alloc(alignment, bytes) },
    }
}

/// `memalign`.
///
/// # Safety
/// As the C library says.
#[cfg_attr(not(test), no_mangle)]
pub unsafe extern "C" fn memalign(alignment: usize, bytes: usize) -> *mut c_void {
    match arena::wants(bytes, alignment) {
        true => from_arena(alignment, bytes),
        // SAFETY: the caller's promise.
        false => unsafe { system::memalign(alignment, bytes) },
    }
}

fn from_arena(alignment: usize, bytes: usize) -> *mut c_void {
    match arena::allocate(bytes, alignment) {
        Some(block) => block.as_ptr(),
        None => {
            set_errno(arena::refused());
            null_mut()
        }
    }
}

/// `free`.
///
/// # Safety
/// As C says. A pointer into the arena that is no live block is told from one that is.
#[cfg_attr(not(test), no_mangle)]
pub unsafe extern "C" fn free(block: *mut c_void) {
    match arena::owns(block) {
        true => arena::free(block),
        // SAFETY: the caller's promise.
        false => unsafe { system::free(block) },
    }
}

/// `free_sized` of C23.
///
/// # Safety
/// As C says.
#[cfg_attr(not(test), no_mangle)]
pub unsafe extern "C" fn free_sized(block: *mut c_void, _bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { free(block) }
}

/// `free_aligned_sized` of C23.
///
/// # Safety
/// As C says.
#[cfg_attr(not(test), no_mangle)]
pub unsafe extern "C" fn free_aligned_sized(block: *mut c_void, _alignment: usize, _bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { free(block) }
}

/// `realloc`. What grows out of a block of the arena stays there while the arena serves.
///
/// # Safety
/// As C says.
#[cfg_attr(not(test), no_mangle)]
pub unsafe extern "C" fn realloc(block: *mut c_void, bytes: usize) -> *mut c_void {
    match arena::owns(block) {
        // SAFETY: the caller's promise.
        true => unsafe { arena::reallocate(block, bytes) },
        // SAFETY: the caller's promise.
        false => unsafe { system::realloc(block, bytes) },
    }
}

/// `malloc_usable_size`.
///
/// # Safety
/// As the C library says.
#[cfg_attr(not(test), no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(block: *mut c_void) -> usize {
    match arena::owns(block) {
        true => arena::size_of(block).unwrap_or(0),
        // SAFETY: the caller's promise.
        false => unsafe { system::usable_size(block) },
    }
}

/// Whether the program's own calls come here, which they do if the library is preloaded and not merely loaded. (Where it is not,
/// the name `posix_memalign` means the C library's here too, so the two files are compared.)
pub fn in_effect() -> bool {
    // SAFETY: the name ends in a zero byte.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"posix_memalign".as_ptr()) };
    let here = in_effect as fn() -> bool as *const c_void;
    let base = |address| file_of(address).map(|file| file.dli_fbase);
    base(here).is_some() && base(found) == base(here)
}
