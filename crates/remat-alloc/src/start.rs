//! The start of the library: it looks the system's functions up and opens the arena that the environment asks for.

use std::env;

use crate::arena::{self, OpenError};
use crate::interpose::in_effect;
use crate::setting::{HOST_ALIGNMENT, Setting};
use crate::{fork, report, system};

/// The environment variable with the size of the arena, for a program that is started with this library preloaded.
const VARIABLE: &str = "REMAT_ARENA";

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    if !in_effect() {
        return;
    }
    system::look_up();
    fork::watch();
    if let Some(text) = env::var_os(VARIABLE) {
        let opened = Setting::parse(&text.to_string_lossy(), HOST_ALIGNMENT)
            .and_then(|setting| arena::open(setting).map_err(|refusal| refusal.to_string()));
        if let Err(refusal) = opened {
            // A program that was to run within so many bytes must not run without a bound.
            report::line(format_args!(
                "{VARIABLE}={}: {refusal}",
                text.to_string_lossy()
            ));
            // SAFETY: `_exit` has no precondition; no part of this process needs to be cleaned up yet.
            unsafe { libc::_exit(2) }
        }
    }
}

/// Opens an arena, if the program's allocations pass through this library.
///
/// # Errors
/// As [`arena::open`], and [`OpenError::NotPreloaded`].
pub fn open_if_preloaded(setting: Setting) -> Result<(), OpenError> {
    if in_effect() {
        arena::open(setting)
    } else {
        Err(OpenError::NotPreloaded)
    }
}
