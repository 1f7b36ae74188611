//! The GIL, taken from wherever torch calls.

use std::marker::PhantomData;

use pyo3::ffi;
use pyo3::prelude::*;

/// The GIL. Torch releases it around its ops without PyO3's knowledge, so PyO3 would take a thread with frames of its
/// own to hold it still.
pub struct Gil(ffi::PyGILState_STATE, PhantomData<*mut ()>);

impl Gil {
    /// `None` before the interpreter begins and once it has ended.
    pub fn take() -> Option<Gil> {
        // SAFETY: any thread may call `Py_IsInitialized`, with the GIL or without. It says that there is an
        // interpreter, and then any thread may call `PyGILState_Ensure`.
        unsafe {
            (ffi::Py_IsInitialized() != 0).then(|| Gil(ffi::PyGILState_Ensure(), PhantomData))
        }
    }

    /// Runs an action with the GIL; `None` where the interpreter has ended.
    pub fn with<R>(action: impl FnOnce(Python<'_>) -> R) -> Option<R> {
        Gil::take()?.run(action)
    }

    /// Runs an action with the GIL that was taken.
    pub fn run<R>(&self, action: impl FnOnce(Python<'_>) -> R) -> Option<R> {
        Python::try_attach(action)
    }
}

impl Drop for Gil {
    fn drop(&mut self) {
        // SAFETY: `PyGILState_Ensure` gave this value to this very thread: a `Gil` cannot leave it, as the marker
        // makes it neither `Send` nor `Sync`.
        unsafe { ffi::PyGILState_Release(self.0) }
    }
}
