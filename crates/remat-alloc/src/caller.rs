//! The caller that asks for memory, and whether it bears a refusal. Torch's allocator of tensors raises an error when
//! it gets none; oneDNN writes to its block without looking, and the program would crash. A thread may say that it
//! bears no refusal either.

use std::cell::Cell;
use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::null_mut;

/// Files of callers that do not bear a refusal: oneDNN, within torch and by itself.
const UNBEARING: [&str; 3] = ["/libtorch_cpu.so", "/libdnnl.so.3", "/libdnnl.so"];

/// Number of frames looked at: this library's own, and the caller's.
const DEPTH: usize = 16;

thread_local! {
    // Constant, without a destructor: see `placement`.
    static SPILLS: Cell<bool> = const { Cell::new(false) };
}

/// Says whether the system serves the calling thread's allocations that find no room. Returns the answer before.
pub fn spill(spill: bool) -> bool {
    SPILLS.with(|spills| spills.replace(spill))
}

/// Whether the code that called into this library checks for a null pointer. Takes microseconds, so it is asked only
/// where there is no room.
#[inline(never)]
pub fn bears_refusal() -> bool {
    if SPILLS.with(Cell::get) {
        return false;
    }
    let mut frames = [null_mut(); DEPTH];
    // SAFETY: the array has `DEPTH` places.
    let found = unsafe { libc::backtrace(frames.as_mut_ptr(), DEPTH as c_int) };
    let here = file_of(bears_refusal as fn() -> bool as *const c_void).map(|file| file.dli_fbase);
    let caller = frames
        .iter()
        .take(found.max(0) as usize)
        .filter_map(|&frame| file_of(frame));
    let Some(caller) = caller.into_iter().find(|file| Some(file.dli_fbase) != here) else {
        return true;
    };
    if caller.dli_fname.is_null() {
        return true;
    }
    // SAFETY: `dladdr` gives the name of a loaded file, a text that ends in a zero byte and stays as long as the file
    // is loaded. The file holds a caller of this function, so it is loaded.
    let name = unsafe { CStr::from_ptr(caller.dli_fname) }.to_bytes();
    !UNBEARING
        .iter()
        .any(|unbearing| name.ends_with(unbearing.as_bytes()))
}

/// The loaded file in which an address lies.
pub fn file_of(address: *const c_void) -> Option<libc::Dl_info> {
    let mut about = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: `dladdr` takes any address, and fills the struct in unless it returns 0. Zeros are a valid struct too.
    unsafe { (libc::dladdr(address, about.as_mut_ptr()) != 0).then(|| about.assume_init()) }
}
