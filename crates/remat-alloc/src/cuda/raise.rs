//! Out of memory as a C++ exception. Torch does not check a pluggable allocator's result: a null pointer would become a
//! tensor that kernels write to. So an exception is thrown, with the C++ library that torch itself has loaded.

use std::ffi::{c_char, c_int, c_void};
use std::mem::transmute;

use super::spaces;
use crate::report::{self, Text};

/// Throws `std::runtime_error`, which Python sees as `RuntimeError`. Returns only where no C++ library is loaded.
pub fn out_of_memory(bytes: u64, device: c_int) {
    let Some(throw) = runtime_error() else {
        return;
    };
    let seen = spaces::with(device, |space| space.region().statistics()).unwrap_or_default();
    let text = Text::of(format_args!(
        "remat: CUDA out of memory: no room for {bytes} bytes in the arena of device {device}: \
         {} of {} bytes are free, {} in one block; raise the budget",
        seen.free_bytes, seen.capacity, seen.largest_free
    ));
    type Throw = unsafe extern "C-unwind" fn(*const c_char) -> !;
    // SAFETY: the address is that of `std::__throw_runtime_error(char const*)`, which has this type and copies the
    // text. The exception unwinds through frames without values to drop, and all frames up to C++ have the "C-unwind"
    // ABI or are Rust.
    unsafe { transmute::<*mut c_void, Throw>(throw)(text.as_ptr()) }
}

fn runtime_error() -> Option<*mut c_void> {
    // SAFETY: both names end in zero bytes, and `RTLD_NOLOAD` loads nothing, so no initializer runs. `dlsym` gets the
    // open library.
    let found = unsafe {
        let library = libc::dlopen(
            c"libstdc++.so.6".as_ptr(),
            libc::RTLD_LAZY | libc::RTLD_NOLOAD,
        );
        if library.is_null() {
            return None;
        }
        libc::dlsym(library, c"_ZSt21__throw_runtime_errorPKc".as_ptr())
    };
    if found.is_null() {
        report::line(format_args!(
            "the C++ library has no __throw_runtime_error; out of memory is a null pointer"
        ));
        return None;
    }
    Some(found)
}
