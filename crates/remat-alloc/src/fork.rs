//! The arena in the child of a fork.
//!
//! The locks are held while the process forks, so the child finds the pool whole. The child's pages are its own (the
//! mapping is private) and it may free the blocks that it inherited. Its new blocks are the system's: the budget
//! belongs to the process that opened the arena, and the registered evictor works for that process alone.

use std::cell::UnsafeCell;
use std::sync::MutexGuard;

use crate::arena::{self, Arenas, EVICTOR};
use crate::evictor::Held;

struct Locks {
    _arena: MutexGuard<'static, Arenas>,
    evictor: Held<'static>,
}

struct Forking(UnsafeCell<Option<Locks>>);

// SAFETY: only the thread that forks touches the cell, and only while it holds the arena's lock. Another thread that
// forks at the same time waits for that lock before it touches the cell.
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
    // SAFETY: the arena's lock is held, so no other thread has a reference into the cell (see `Forking`).
    unsafe {
        *FORKING.0.get() = Some(Locks {
            _arena: arena,
            evictor,
        })
    };
}

fn locks() -> Option<Locks> {
    // SAFETY: this thread took the arena's lock in `before`, as a thread of the parent or as the only thread of the
    // child, and holds it until the value returned here is dropped. So no other thread has a reference into the cell.
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
