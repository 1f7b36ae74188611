//! What a fork leaves of the arena in the child.
//!
//! The locks are held while the process forks, so the child finds the pool whole. The child's pages are its own (the mapping is
//! private) and it may free what it inherited, but new blocks are the system's there: the budget is that of the
//! process that opened the arena, and whoever makes room in it works for that process alone.

use std::cell::UnsafeCell;
use std::sync::MutexGuard;

use crate::arena::{self, Arenas, EVICTOR};
use crate::evictor::Held;

struct Locks {
    _arena: MutexGuard<'static, Arenas>,
    evictor: Held<'static>,
}

struct Forking(UnsafeCell<Option<Locks>>);

// SAFETY: it is touched only by the thread that forks, between its taking the arena's lock and its letting go of it; another thread
// that forks at the same time waits for that lock before it touches anything.
unsafe impl Sync for Forking {}

static FORKING: Forking = Forking(UnsafeCell::new(None));

/// Registers the handlers. Once, at the start.
pub fn watch() {
    // SAFETY: the three functions live as long as the library, which is never unloaded while it is preloaded.
    unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
}

extern "C" fn before() {
    let arena = arena::hold();
    let evictor = EVICTOR.hold();
    // SAFETY: the lock is held; see `Forking`.
    unsafe {
        *FORKING.0.get() = Some(Locks {
            _arena: arena,
            evictor,
        })
    };
}

fn locks() -> Option<Locks> {
    // SAFETY: this thread took the lock in `before`, in the parent or as the only thread of the child; it is let go only when
    // what is returned here is dropped.
    unsafe { (*FORKING.0.get()).take() }
}

extern "C" fn in_parent() {
    drop(locks());
}

extern "C" fn in_child() {
    arena::close();
    if let Some(mut locks) = locks() {
        locks.evictor.clear();
    }
}
