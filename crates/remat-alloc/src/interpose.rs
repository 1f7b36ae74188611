//! The C library's functions that this library stands in for when it is preloaded.
//!
//! `malloc` and `calloc` are not among them: they align to 16 bytes and tensors to 64, so their blocks are never the
//! arena's, and neither the dynamic linker's start nor the pool's own vectors come through here. (The unit tests keep
//! the C library's functions.)

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use crate::arena::set_errno;
use crate::caller::file_of;
use crate::{arena, caller, system};

/// `posix_memalign`, which gives torch its tensors.
///
/// # Safety
/// As POSIX says.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn posix_memalign(
    out: *mut *mut c_void,
    alignment: usize,
    bytes: usize,
) -> c_int {
    if !arena::wants(bytes, alignment) {
        // SAFETY: the caller's promise is that of the system's function.
        return unsafe { system::posix_memalign(out, alignment, bytes) };
    }
    if let Some(block) = arena::allocate(bytes, alignment) {
        // SAFETY: the caller promises that `out` points to a place for one pointer.
        unsafe { *out = block.as_ptr() };
        return 0;
    }
    if caller::bears_refusal() {
        return arena::refused();
    }
    arena::spilled();
    // SAFETY: the caller's promise is that of the system's function.
    unsafe { system::posix_memalign(out, alignment, bytes) }
}

/// `aligned_alloc`.
///
/// # Safety
/// As C says.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn aligned_alloc(alignment: usize, bytes: usize) -> *mut c_void {
    if arena::wants(bytes, alignment) {
        return from_arena(alignment, bytes);
    }
    // SAFETY: the caller's promise is that of the system's function.
    unsafe { system::aligned_alloc(alignment, bytes) }
}

/// `memalign`.
///
/// # Safety
/// As the C library says.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn memalign(alignment: usize, bytes: usize) -> *mut c_void {
    if arena::wants(bytes, alignment) {
        return from_arena(alignment, bytes);
    }
    // SAFETY: the caller's promise is that of the system's function.
    unsafe { system::memalign(alignment, bytes) }
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
/// As C says, for pointers outside of the arena. Any pointer into the arena may be passed, be it a live block or not.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn free(block: *mut c_void) {
    if arena::owns(block) {
        return arena::free(block);
    }
    // SAFETY: the block is not the arena's, so the system gave it; the caller's promise is that of the system's
    // function.
    unsafe { system::free(block) }
}

/// `free_sized` of C23.
///
/// # Safety
/// As C says.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn free_sized(block: *mut c_void, _bytes: usize) {
    // SAFETY: the caller's promise is that of `free`.
    unsafe { free(block) }
}

/// `free_aligned_sized` of C23.
///
/// # Safety
/// As C says.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn free_aligned_sized(block: *mut c_void, _alignment: usize, _bytes: usize) {
    // SAFETY: the caller's promise is that of `free`.
    unsafe { free(block) }
}

/// `realloc`. A block that grows out of one of the arena is the arena's too, while the arena serves.
///
/// # Safety
/// As C says.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn realloc(block: *mut c_void, bytes: usize) -> *mut c_void {
    if arena::owns(block) {
        // SAFETY: the block lies in an arena, and the caller promises that it is its own.
        return unsafe { arena::reallocate(block, bytes) };
    }
    // SAFETY: the block is not the arena's, so the system gave it; the caller's promise is that of the system's
    // function.
    unsafe { system::realloc(block, bytes) }
}

/// `malloc_usable_size`.
///
/// # Safety
/// As the C library says.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn malloc_usable_size(block: *mut c_void) -> usize {
    if arena::owns(block) {
        return arena::size_of(block).unwrap_or(0);
    }
    // SAFETY: the block is not the arena's, so the system gave it; the caller's promise is that of the system's
    // function.
    unsafe { system::usable_size(block) }
}

/// Whether the program's own calls come here, which they do if the library is preloaded and not merely loaded. (Where
/// it is not, the name `posix_memalign` means the C library's function here too, so the two files are compared.)
pub fn in_effect() -> bool {
    // SAFETY: `RTLD_DEFAULT` is a valid handle, and a `CStr` ends in a zero byte.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"posix_memalign".as_ptr()) };
    let here = in_effect as fn() -> bool as *const c_void;
    let base = |address| file_of(address).map(|file| file.dli_fbase);
    base(here).is_some() && base(found) == base(here)
}
