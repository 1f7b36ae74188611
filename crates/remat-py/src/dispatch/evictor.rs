//! The function that makes room when the arena is exhausted: amid an op, or where torch allocates without one.
//!
//! The allocator calls it from within an allocation, on whatever thread that happens. If an op runs, the thread that
//! runs it lends the session's state and does nothing with it meanwhile; else the state is locked. Where neither is to
//! be had nothing is evicted: a replay is given up and planned anew, and a thread that waited for the session for some
//! seconds gets torch's error.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::ffi;
use pyo3::prelude::*;

use super::lock::SessionLock;
use super::state::State;
use crate::ffi::gil::Gil;
use crate::tracking::devices::PLACED;

/// The session whose arena is open.
static EVICTOR: Mutex<Option<Arc<SessionLock>>> = Mutex::new(None);

impl State {
    /// Evicts until a block of so many bytes is free. Evicted storages are no candidates any more, and those that the
    /// running op uses are locked.
    fn make_block(&mut self, py: Python<'_>, bytes: u64) -> bool {
        let executor = &mut self.executor;
        if executor.arena.is_none() || executor.performing {
            return false;
        }
        let before = executor.engine.counters().evicted_bytes;
        let made = executor
            .observe(py)
            .and_then(|()| executor.make_room(py, bytes, PLACED));
        let evicted = executor.engine.counters().evicted_bytes - before;
        if let Some(arena) = &mut executor.arena {
            arena.evicted_inside += evicted;
            arena.stale = true; // blocks kept for the op that runs are its outputs' still
        }
        if let Err(error) = &made {
            if error.is_instance_of::<pyo3::exceptions::PyKeyboardInterrupt>(py) {
                // It struck while evicting: the op fails for want of memory, and the interrupt comes again.
                // SAFETY: the GIL is held, as `py` proves.
                unsafe { ffi::PyErr_SetInterrupt() };
            }
        }
        made.is_ok()
    }
}

/// `remat_make_room`.
pub(super) extern "C" fn make_room(bytes: u64, _context: *mut c_void) -> bool {
    let made = Gil::with(|py| {
        let session = EVICTOR
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        session.and_then(|session| session.with_any(py, |state| state.make_block(py, bytes)))
    });
    made.flatten().unwrap_or(false)
}

/// Registers the session that makes room from now on; `None` for nobody. The session registered before is dropped.
pub(super) fn register(session: Option<Arc<SessionLock>>) {
    let mut evictor = EVICTOR.lock().unwrap_or_else(PoisonError::into_inner);
    let before = std::mem::replace(&mut *evictor, session);
    drop(evictor); // dropping the last reference may run Python code
    drop(before);
}
