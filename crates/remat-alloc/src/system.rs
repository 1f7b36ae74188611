//! The allocator beneath: the next definition of each function in the dynamic linker's order, glibc's or that of
//! another preloaded library.

use std::ffi::{CStr, c_int, c_void};
use std::mem::transmute;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

struct Next {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

/// Whether a function is being looked up. The dynamic linker may itself free memory meanwhile, before `free` is found.
static LOOKING: AtomicBool = AtomicBool::new(false);

impl Next {
    const fn named(name: &'static CStr) -> Next {
        Next {
            name,
            found: AtomicPtr::new(null_mut()),
        }
    }

    /// The function's address. `Relaxed` is enough: the store publishes no data.
    #[inline]
    fn address(&self) -> *mut c_void {
        match self.found.load(Ordering::Relaxed) {
            found if found.is_null() => self.look_up(),
            found => found,
        }
    }

    #[cold]
    fn look_up(&self) -> *mut c_void {
        LOOKING.store(true, Ordering::Relaxed);
        // SAFETY: `RTLD_NEXT` is a valid handle, and a `CStr` ends in a zero byte.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        LOOKING.store(false, Ordering::Relaxed);
        self.found.store(found, Ordering::Relaxed);
        found
    }
}

static FREE: Next = Next::named(c"free");
static REALLOC: Next = Next::named(c"realloc");
static POSIX_MEMALIGN: Next = Next::named(c"posix_memalign");
static ALIGNED_ALLOC: Next = Next::named(c"aligned_alloc");
static MEMALIGN: Next = Next::named(c"memalign");
static MALLOC_USABLE_SIZE: Next = Next::named(c"malloc_usable_size");

/// Looks all functions up, while there is one thread.
pub fn look_up() {
    for next in [
        &FREE,
        &REALLOC,
        &POSIX_MEMALIGN,
        &ALIGNED_ALLOC,
        &MEMALIGN,
        &MALLOC_USABLE_SIZE,
    ] {
        next.address();
    }
}

/// `free`.
///
/// # Safety
/// As the C function.
#[inline]
pub unsafe fn free(block: *mut c_void) {
    if FREE.found.load(Ordering::Relaxed).is_null() && LOOKING.load(Ordering::Relaxed) {
        return; // a few bytes of the dynamic linker's leak, once
    }
    let next = FREE.address();
    if !next.is_null() {
        // SAFETY: `next` is the address of a definition of `free`, which has this type. The caller's promise is that of
        // the function.
        unsafe { transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void)>(next)(block) }
    }
}

/// `realloc`.
///
/// # Safety
/// As the C function.
pub unsafe fn realloc(block: *mut c_void, bytes: usize) -> *mut c_void {
    let next = REALLOC.address();
    if next.is_null() {
        return null_mut();
    }
    // SAFETY: `next` is the address of a definition of `realloc`, which has this type. The caller's promise is that of
    // the function.
    unsafe {
        transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void>(next)(
            block, bytes,
        )
    }
}

/// `posix_memalign`.
///
/// # Safety
/// As the C function.
pub unsafe fn posix_memalign(out: *mut *mut c_void, alignment: usize, bytes: usize) -> c_int {
    let next = POSIX_MEMALIGN.address();
    if next.is_null() {
        return libc::ENOMEM;
    }
    type Function = unsafe extern "C" fn(*mut *mut c_void, usize, usize) -> c_int;
    // SAFETY: `next` is the address of a definition of `posix_memalign`, which has this type. The caller's promise is
    // that of the function.
    unsafe { transmute::<*mut c_void, Function>(next)(out, alignment, bytes) }
}

/// `aligned_alloc`.
///
/// # Safety
/// As the C function.
pub unsafe fn aligned_alloc(alignment: usize, bytes: usize) -> *mut c_void {
    // SAFETY: the name is of such a function; the caller's promise is that of the function.
    unsafe { aligned(&ALIGNED_ALLOC, alignment, bytes) }
}

/// `memalign`.
///
/// # Safety
/// As the C function.
pub unsafe fn memalign(alignment: usize, bytes: usize) -> *mut c_void {
    // SAFETY: the name is of such a function; the caller's promise is that of the function.
    unsafe { aligned(&MEMALIGN, alignment, bytes) }
}

/// `aligned_alloc` or `memalign`.
///
/// # Safety
/// `function` names one of the two; otherwise as that C function.
unsafe fn aligned(function: &Next, alignment: usize, bytes: usize) -> *mut c_void {
    let next = function.address();
    if next.is_null() {
        return null_mut();
    }
    // SAFETY: `next` is the address of a definition of the function, and both functions have this type. The caller's
    // promise is that of the function.
    unsafe {
        transmute::<*mut c_void, unsafe extern "C" fn(usize, usize) -> *mut c_void>(next)(
            alignment, bytes,
        )
    }
}

/// `malloc_usable_size`.
///
/// # Safety
/// As the C function.
pub unsafe fn usable_size(block: *mut c_void) -> usize {
    let next = MALLOC_USABLE_SIZE.address();
    if next.is_null() {
        return 0;
    }
    // SAFETY: `next` is the address of a definition of `malloc_usable_size`, which has this type. The caller's promise
    // is that of the function.
    unsafe { transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void) -> usize>(next)(block) }
}
