//! Who makes room when the arena is exhausted: amid an op, or where torch allocates without one.
//!
//! The allocator calls from within an allocation, on whatever thread that happens. If an op runs, the session's state is lent by
//! the thread that runs it, which does nothing with it meanwhile; else the state is locked. Where neither is to be had (a plan is being
//! performed, another thread works with the state) nothing is evicted: the replay is given up and planned anew, the
//! thread gets torch's error.

use std::ffi::c_void;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use pyo3::ffi;
use pyo3::prelude::*;

use super::{thread_id, Session, State};
use crate::core_state::PLACED;

/// The session whose arena is open.
static EVICTOR: Mutex<Option<Py<Session>>> = Mutex::new(None);

/// The state of a session while an op runs; null otherwise.
pub(super) struct Lent(Mutex<*mut State>);

// SAFETY: the pointer is only followed with the lock held and the GIL too, and the state itself may be sent between threads.
unsafe impl Send for Lent {}
// SAFETY: as above.
unsafe impl Sync for Lent {}

impl Lent {
    pub(super) fn none() -> Lent {
        Lent(Mutex::new(std::ptr::null_mut()))
    }

    /// Takes the lock. Who has it evicts and may need the GIL: it is let go meanwhile.
    fn hold(&self, py: Python<'_>) -> MutexGuard<'_, *mut State> {
        loop {
            match self.0.try_lock() {
                Ok(lent) => return lent,
                Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => py.detach(std::thread::yield_now),
            }
        }
    }
}

/// Takes the state back, even if the op unwinds.
struct Lending<'a, 'py> {
    lent: &'a Lent,
    py: Python<'py>,
}

impl Drop for Lending<'_, '_> {
    fn drop(&mut self) {
        *self.lent.hold(self.py) = std::ptr::null_mut();
    }
}

impl State {
    /// Runs an op; whoever finds the arena exhausted meanwhile may evict.
    pub(super) fn lending<T>(&mut self, py: Python<'_>, op: impl FnOnce() -> T) -> T {
        if self.core.arena.is_none() {
            return op();
        }
        let lent = self.lent.clone();
        // The pointer comes from this exclusive borrow, which is not used until the pointer is gone again.
        *lent.hold(py) = &raw mut *self;
        let lending = Lending { lent: &lent, py };
        let result = op();
        drop(lending);
        result
    }

    /// Evicts until a block of so many bytes is free. What was evicted is no candidate any more, what runs is locked.
    fn make_block(&mut self, py: Python<'_>, bytes: u64) -> bool {
        let core = &mut self.core;
        if core.arena.is_none() || core.performing {
            return false;
        }
        let before = core.engine.counters().evicted_bytes;
        let made = core
            .observe(py)
            .and_then(|()| core.make_room(py, bytes, PLACED));
        let evicted = core.engine.counters().evicted_bytes - before;
        if let Some(arena) = &mut core.arena {
            arena.evicted_inside += evicted;
            arena.stale = true; // blocks kept for the op that runs are its outputs' still
        }
        if let Err(error) = &made {
            if error.is_instance_of::<pyo3::exceptions::PyKeyboardInterrupt>(py) {
                // It struck while evicting: the op fails for want of memory, and the interrupt comes again.
                // SAFETY: the GIL is held.
                unsafe { ffi::PyErr_SetInterrupt() };
            }
        }
        made.is_ok()
    }
}

/// The GIL, taken from wherever an allocation happens. Torch lets go of it around its ops without PyO3's knowledge, so that PyO3
/// would think that a thread with frames of its own has it still.
struct Gil(ffi::PyGILState_STATE);

impl Gil {
    /// `None` before the interpreter begins and once it has ended.
    fn take() -> Option<Gil> {
        // SAFETY: both may be called by any thread, with the GIL or without; the second only while there is an interpreter.
        unsafe { (ffi::Py_IsInitialized() != 0).then(|| Gil(ffi::PyGILState_Ensure())) }
    }
}

impl Drop for Gil {
    fn drop(&mut self) {
        // SAFETY: what `PyGILState_Ensure` gave this very thread.
        unsafe { ffi::PyGILState_Release(self.0) }
    }
}

/// `remat_make_room`.
pub(super) unsafe extern "C" fn make_room(bytes: u64, _context: *mut c_void) -> bool {
    let Some(_gil) = Gil::take() else {
        return false;
    };
    let made = Python::try_attach(|py| {
        let session = EVICTOR
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .as_ref()
            .map(|session| session.clone_ref(py));
        session.is_some_and(|session| evict_for(py, session.get(), bytes))
    });
    made.unwrap_or(false)
}

fn evict_for(py: Python<'_>, session: &Session, bytes: u64) -> bool {
    let mut lent = session.lent.hold(py);
    if !lent.is_null() {
        // What Python does meanwhile on this thread (an object's end) is no op of the session's.
        let runs = session.owner.swap(thread_id(), Ordering::AcqRel);
        // SAFETY: the thread that lent its exclusive borrow waits for the op, and takes the lock that is held here before it
        // uses the state again; all others that come here wait for the lock.
        let made = unsafe { &mut **lent }.make_block(py, bytes);
        session.owner.store(runs, Ordering::Release);
        return made;
    }
    drop(lent);
    let mut state = match session.state.try_lock() {
        Ok(state) => state,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return false,
    };
    session.owner.store(thread_id(), Ordering::Release);
    let made = state.make_block(py, bytes);
    session.owner.store(0, Ordering::Release);
    made
}

/// This session makes room from now on; `None`: nobody does. What was registered before is dropped.
pub(super) fn register(session: Option<Py<Session>>) {
    let mut evictor = EVICTOR.lock().unwrap_or_else(PoisonError::into_inner);
    let before = std::mem::replace(&mut *evictor, session);
    drop(evictor); // what goes now may be the last reference
    drop(before);
}
