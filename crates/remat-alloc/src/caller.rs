//! Who asks for memory. Torch's allocator of tensors raises an error when it gets none; oneDNN writes to what it asked for without
//! looking, and the program would end there. A thread may say that it bears no refusal either.

use std::cell::Cell;
use std::ffi::{c_int, c_void, CStr};
use std::mem::MaybeUninit;
use std::ptr::null_mut;

/// Files of callers that do not bear a refusal: oneDNN, within torch and by itself.
const UNBEARING: [&str; 3] = ["/libtorch_cpu.so", "/libdnnl.so.3", "/libdnnl.so"];

/// Frames looked at: this library's own, and the caller's.
const DEPTH: usize = 16;

thread_local! {
    // Constant, without a destructor: see `placement`.
    static SPILLS: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread bears no refusal from here on; what it was.
pub fn spill(spill: bool) -> bool {
    SPILLS.with(|spills| spills.replace(spill))
}

/// Whether the code that called into this library looks at what it gets. Takes microseconds: for when there is no room.
#[inline(never)]
pub fn bears_refusal() -> bool {
    if SPILLS.with(Cell::get) {
        return false;
    }
    let mut frames = [null_mut(); DEPTH];
    // SAFETY: as many places as are said.
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
    // SAFETY: the name of a file that is loaded, which ends in a zero byte.
    let name = unsafe { CStr::from_ptr(caller.dli_fname) }.to_bytes();
    !UNBEARING
        .iter()
        .any(|unbearing| name.ends_with(unbearing.as_bytes()))
}

/// What is loaded where an address lies.
pub fn file_of(address: *const c_void) -> Option<libc::Dl_info> {
    let mut about = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: `dladdr` takes any address and fills in the struct unless it returns 0; zeros are a valid struct too.
    unsafe { (libc::dladdr(address, about.as_mut_ptr()) != 0).then(|| about.assume_init()) }
}
