//! The session in force as native ops see it, and their way to the dispatch mode.
//!
//! A call that Python has to see is handed to the dispatch mode, as if the program had one on its stack.

use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};

use pyo3::prelude::*;

use super::fallback_route::Route;
use super::lock::SessionLock;
use super::modes::Modes;
use super::raising::raise;
use super::thread::{THREAD, Thread};
use crate::ffi::boxed::{Boxed, Stack};
use crate::ffi::dispatcher::{self, Dispatcher, Op, Torch};
use crate::ffi::errors::error_aside;
use crate::ffi::gil::Gil;

/// The session in force, as the fallback sees it.
pub struct Native {
    pub(super) lock: Arc<SessionLock>,
    /// The dispatch mode, for ops of forms that are not known.
    mode: Py<PyAny>,
    /// The stack of modes.
    modes: Modes,
    /// `route(name, overload)`: an op's way and its schema, as a tuple.
    route: Py<PyAny>,
}

/// The place of the dispatch mode on the stack of modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Above all others: the session has seen the call already.
    Top,
    /// Below those of the program: modes and tensor subclasses see the call first, as where Python's key lies above the
    /// fallback's, and the ops that they call reach the session through the mode.
    Beneath,
}

static ACTIVE: RwLock<Option<Arc<Native>>> = RwLock::new(None);

/// The lock of the session in force, held against all others.
pub(super) type Locked = RwLockWriteGuard<'static, Option<Arc<Native>>>;

/// Waits for those who look at the session in force, and keeps others from it.
pub(super) fn lock_active() -> Locked {
    ACTIVE.write().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn active() -> Option<Arc<Native>> {
    ACTIVE
        .read()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
}

/// The lock of the session in force.
pub(super) fn active_lock() -> Option<Arc<SessionLock>> {
    Some(active()?.lock.clone())
}

/// Enters the session: ops of threads that include the key come to it.
pub(super) fn enter(native: Native) {
    let mut active = lock_active();
    let before = active.replace(Arc::new(native));
    drop(active); // dropping the last reference may run Python code
    drop(before);
}

/// Leaves the session.
pub(super) fn leave() {
    let mut active = lock_active();
    let before = active.take();
    drop(active);
    drop(before);
}

impl Native {
    pub(super) fn new(
        lock: Arc<SessionLock>,
        mode: Py<PyAny>,
        internals: &Bound<'_, PyAny>,
    ) -> PyResult<Native> {
        let get = |name: &str| -> PyResult<Py<PyAny>> { Ok(internals.getattr(name)?.unbind()) };
        Ok(Native {
            lock,
            mode,
            modes: Modes::of(internals)?,
            route: get("route")?,
        })
    }

    /// The treatment of an op, which Python describes when it is first seen.
    pub(super) fn learn_route(&self, py: Python<'_>, op: Op) -> PyResult<Route> {
        // SAFETY: the dispatcher passed the op to the fallback.
        let (name, overload) = unsafe { op.name() };
        let found = self.route.bind(py).call1((name, overload))?;
        let way: String = found.get_item("way")?.extract()?;
        Ok(Route::learn(op, &way, found.extract()?))
    }

    /// Hands the call to Python, with the dispatch mode in this place on the stack of modes.
    ///
    /// # Safety
    /// As for [`Dispatcher::through_mode`]; the key is excluded.
    pub(super) unsafe fn through_python(
        &self,
        place: Place,
        torch: &Torch,
        op: *const Op,
        keys: u64,
        stack: *mut Stack,
    ) {
        let Native { mode, modes, .. } = self;
        let pushed = Gil::with(|py| match place {
            Place::Top => modes.push(py, mode),
            Place::Beneath => modes.push_beneath(py, mode),
        });
        if let Some(Err(error)) = pushed {
            // SAFETY: no reference into the stack is held.
            unsafe { raise(torch, error) };
        }
        let _pushed = Pushed(self, place);
        // SAFETY: as the caller promises; the mode was pushed.
        unsafe { torch.dispatcher.through_mode(op, keys, stack) }
    }
}

/// Has Python tell of an error on stderr, where nobody can be told of it otherwise.
fn told<T>(py: Python<'_>, outcome: PyResult<T>) {
    if let Err(error) = outcome {
        error.write_unraisable(py, None);
    }
}

/// Takes the mode off the stack when dropped, after an error of torch too.
struct Pushed<'a>(&'a Native, Place);

impl Drop for Pushed<'_> {
    fn drop(&mut self) {
        let Pushed(Native { mode, modes, .. }, place) = self;
        // Taking it off cannot fail: the mode is there.
        let take_off = |py: Python<'_>| match place {
            Place::Top => told(py, modes.pop(py)),
            Place::Beneath => told(py, modes.drop_beneath(py, mode)),
        };
        Gil::with(|py| error_aside(py, || take_off(py)));
    }
}

/// Sets the tags and offsets of boxed values.
#[pyfunction]
pub fn describe_boxed(boxed: Boxed) {
    // SAFETY: as for `register_native`.
    unsafe { dispatcher::set_boxed(boxed) }
}

/// Whether ops that this thread calls now reach the session natively.
#[pyfunction]
pub fn reaches_session() -> bool {
    let seen = |at: &Dispatcher| at.is_reached() && !at.modes_are_disabled();
    dispatcher::dispatcher().is_some_and(seen)
        && !THREAD.with(Thread::is_paused)
        && active().is_some()
}

/// Ends native dispatch for all threads.
#[pyfunction]
pub fn leave_native() {
    leave();
}

/// Whether a tensor is a leaf, by the address of its `c10::TensorImpl`; `None` before native dispatch was set up.
#[pyfunction]
pub fn is_leaf(tensor: usize) -> Option<bool> {
    let (dispatcher, boxed) = (dispatcher::dispatcher()?, dispatcher::boxed()?);
    // SAFETY: the probe holds the tensor.
    Some(unsafe { dispatcher.is_leaf(&boxed.tensor_at(tensor)) })
}
