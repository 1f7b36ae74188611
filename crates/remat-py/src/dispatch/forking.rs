//! The locks of native ops while the process forks.
//!
//! Ops take them for a moment with the GIL released. In the child of a fork nobody would unlock one that another thread
//! had taken. So they are held while the process forks.
//!
//! Prepare handlers run in the reverse order of their registration. The arena's is registered as its library is loaded,
//! long before this one: whoever learns a route may ask the arena for memory, so the arena's lock comes last. No lock
//! of the caching allocator is held where one of these is asked for, nor the other way round.

use std::cell::UnsafeCell;
use std::sync::Once;

use super::{fallback_route, native};

struct Locks {
    _active: native::Locked,
    _routes: fallback_route::Locked,
}

struct Forking(UnsafeCell<Option<Locks>>);

// SAFETY: only the thread that forks touches the cell, and only while it holds the locks. Another thread that forks at
// the same time waits for the first of them before it touches the cell.
unsafe impl Sync for Forking {}

static FORKING: Forking = Forking(UnsafeCell::new(None));

/// Has the locks held while the process forks, from now on.
pub(super) fn watch() {
    static WATCHED: Once = Once::new();
    // SAFETY: the three functions live as long as the extension module, which is never unloaded.
    WATCHED.call_once(|| unsafe {
        libc::pthread_atfork(Some(before), Some(after), Some(after));
    });
}

extern "C" fn before() {
    let locks = Locks {
        _active: native::lock_active(),
        _routes: fallback_route::lock_routes(),
    };
    // SAFETY: the locks are held (see `Forking`).
    unsafe { *FORKING.0.get() = Some(locks) };
}

extern "C" fn after() {
    // SAFETY: this thread took the locks in `before`, as a thread of the parent or as the only thread of the child, and
    // holds them until the value taken here is dropped (see `Forking`).
    drop(unsafe { (*FORKING.0.get()).take() });
}
