//! A state that its owner lends to other code while it does not use it.

use std::sync::{Mutex, MutexGuard, TryLockError};

use pyo3::prelude::*;

use crate::ffi::gil::Attach;

/// The address of a state while its owner lends it; null otherwise.
pub(super) struct Lent<T>(Mutex<*mut T>);

// SAFETY: the pointer is followed only with this lock held (see `with`), so by one thread at a time; `T: Send` says
// that any thread may use the state.
unsafe impl<T: Send> Send for Lent<T> {}
// SAFETY: as for `Send`; a shared reference gives access to the pointer through the lock alone.
unsafe impl<T: Send> Sync for Lent<T> {}

impl<T> Lent<T> {
    pub(super) fn none() -> Lent<T> {
        Lent(Mutex::new(std::ptr::null_mut()))
    }

    /// Takes the lock. Its holder may need the GIL to go on, so it is released while this thread waits.
    fn hold(&self, gil: impl Attach) -> MutexGuard<'_, *mut T> {
        loop {
            match self.0.try_lock() {
                Ok(lent) => return lent,
                Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => {
                    let waited = gil.attach(|py| {
                        py.detach(std::thread::yield_now);
                        Ok(())
                    });
                    if waited.is_err() {
                        std::thread::yield_now(); // the interpreter has ended
                    }
                }
            }
        }
    }

    /// Runs `op` while the state is lent. The state is taken back even if `op` unwinds.
    pub(super) fn lending<R>(&self, gil: impl Attach, state: &mut T, op: impl FnOnce() -> R) -> R {
        // The pointer comes from this exclusive borrow, which is not used until the pointer is gone again.
        *self.hold(gil) = &raw mut *state;
        let lending = Lending { lent: self, gil };
        let result = op();
        drop(lending);
        result
    }

    /// Uses the state if it is lent; others that want it wait meanwhile. `None` if it is not lent.
    pub(super) fn with<R>(&self, py: Python<'_>, action: impl FnOnce(&mut T) -> R) -> Option<R> {
        let lent = self.hold(py);
        // SAFETY: null, or the address that `lending` stored from an exclusive borrow. Its owner does not use the
        // borrow before it has set the pointer to null, for which it needs the lock that is held here. All others that
        // follow the pointer come through here and wait for the lock too, so this is the only reference.
        let state = unsafe { lent.as_mut() };
        state.map(action)
    }
}

/// Takes the state back when dropped.
struct Lending<'a, T, G: Attach> {
    lent: &'a Lent<T>,
    gil: G,
}

impl<T, G: Attach> Drop for Lending<'_, T, G> {
    fn drop(&mut self) {
        *self.lent.hold(self.gil) = std::ptr::null_mut();
    }
}
