//! The GIL, taken from wherever torch calls, and objects that may be dropped without it.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;

use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;

/// The GIL. Torch releases it around its ops without PyO3's knowledge, so PyO3 would take a thread with frames of its
/// own to hold it still.
pub struct Gil(ffi::PyGILState_STATE, PhantomData<*mut ()>);

impl Gil {
    /// Whether there is an interpreter.
    pub fn is_there() -> bool {
        // SAFETY: any thread may call it, with the GIL or without.
        unsafe { ffi::Py_IsInitialized() != 0 }
    }

    /// `None` before the interpreter begins and once it has ended.
    pub fn take() -> Option<Gil> {
        // SAFETY: where there is an interpreter, any thread may call `PyGILState_Ensure`.
        Gil::is_there().then(|| Gil(unsafe { ffi::PyGILState_Ensure() }, PhantomData))
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

/// Whoever can run an action with the GIL: one who holds it, or one who takes it where it is needed.
pub trait Attach: Copy {
    /// Runs an action with the GIL.
    ///
    /// # Errors
    /// Those of the action; `RuntimeError` where the interpreter has ended.
    fn attach<R>(self, action: impl FnOnce(Python<'_>) -> PyResult<R>) -> PyResult<R>;
}

impl Attach for Python<'_> {
    #[inline]
    fn attach<R>(self, action: impl FnOnce(Python<'_>) -> PyResult<R>) -> PyResult<R> {
        action(self)
    }
}

/// Takes the GIL where it is needed, and gives it back at once. Whoever waits for the session's lock waits without the
/// GIL, so it may be taken under the lock.
#[derive(Clone, Copy, Debug)]
pub struct OnDemand;

impl Attach for OnDemand {
    #[cold]
    fn attach<R>(self, action: impl FnOnce(Python<'_>) -> PyResult<R>) -> PyResult<R> {
        let ended = || PyRuntimeError::new_err("remat: the interpreter has ended");
        Gil::with(action).unwrap_or_else(|| Err(ended()))
    }
}

/// A reference to a Python object that is dropped wherever, with the GIL or without it.
///
/// PyO3's own is not enough: it takes a thread with frames of PyO3's to hold the GIL, and torch has given it back.
pub struct Object<T = PyAny>(ManuallyDrop<Py<T>>);

impl<T> From<Py<T>> for Object<T> {
    fn from(object: Py<T>) -> Object<T> {
        Object(ManuallyDrop::new(object))
    }
}

impl<T> From<Bound<'_, T>> for Object<T> {
    fn from(object: Bound<'_, T>) -> Object<T> {
        object.unbind().into()
    }
}

impl<T> Deref for Object<T> {
    type Target = Py<T>;

    fn deref(&self) -> &Py<T> {
        &self.0
    }
}

impl<T> Drop for Object<T> {
    fn drop(&mut self) {
        // Where the interpreter has ended there is nobody to give the object back to.
        if let Some(gil) = Gil::take() {
            // SAFETY: the reference is dropped once, here, with the GIL.
            gil.run(|_| unsafe { ManuallyDrop::drop(&mut self.0) });
        }
    }
}

impl Drop for Gil {
    fn drop(&mut self) {
        // SAFETY: `PyGILState_Ensure` gave this value to this very thread: a `Gil` cannot leave it, as the marker
        // makes it neither `Send` nor `Sync`.
        unsafe { ffi::PyGILState_Release(self.0) }
    }
}
