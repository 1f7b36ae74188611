//! The fallback on torch's dispatcher: ops reach the session without Python.
//!
//! An op of a known form is [announced, run and taken in](super::incoming). Any other is handed to the
//! [dispatch mode](super::native), where its form may become known.

use std::ffi::c_void;
use std::sync::atomic::Ordering;

use pyo3::prelude::*;

use super::capture;
use super::fallback_route::Route;
use super::forking;
use super::incoming::Incoming;
use super::native::{Native, Place, active};
use super::raising::raise;
use super::thread::THREAD;
use crate::ffi::autograd;
use crate::ffi::boxed::Stack;
use crate::ffi::counted;
use crate::ffi::dispatcher::{self, Keys, Libraries, Op, Torch};
use crate::ffi::gil::Gil;

/// The fallback.
///
/// # Safety
/// The dispatcher calls it.
unsafe extern "C-unwind" fn fallback(
    _functor: *mut c_void,
    op: *const Op,
    keys: u64,
    stack: *mut Stack,
) {
    let Some(dispatcher) = dispatcher::dispatcher() else {
        std::process::abort() // it is set up before any thread includes the key
    };
    // SAFETY: the dispatcher's own argument.
    let id = unsafe { *op };
    let (captures, paused, route) = THREAD.with(|thread| thread.look(id));
    if captures {
        // SAFETY: the dispatcher's own arguments.
        unsafe { capture::note(op, keys, stack) };
    }
    // What no dispatch mode sees is none of the session's business.
    let aside = captures || paused || dispatcher.modes_are_disabled() || !Gil::is_there();
    let native = if aside { None } else { active() };
    let (Some(native), Some(boxed)) = (native, dispatcher::boxed()) else {
        let _excluded = dispatcher.exclude();
        // SAFETY: the dispatcher's own arguments.
        return unsafe { dispatcher.next(op, keys, stack) };
    };
    let torch = Torch { dispatcher, boxed };
    if dispatcher.awaits_python(keys) {
        let _excluded = dispatcher.exclude();
        // SAFETY: the dispatcher's own arguments; `native` is an `Arc`, which unwinding drops.
        return unsafe { native.through_python(Place::Beneath, &torch, op, keys, stack) };
    }
    let route = match route {
        Some(route) => Ok(route),
        None => {
            let _excluded = dispatcher.exclude();
            Gil::with(|py| native.learn_route(py, id)).unwrap_or(Ok(Route::Run))
        }
    };
    // SAFETY: the dispatcher's own arguments; `native` is an `Arc`, which unwinding drops.
    unsafe {
        match route {
            Ok(Route::Decompose) => dispatcher.next(op, keys, stack),
            Ok(Route::Run) => {
                native.lock.passed.fetch_add(1, Ordering::Relaxed);
                let _excluded = dispatcher.exclude();
                dispatcher.next(op, keys, stack)
            }
            Ok(Route::Detach) => {
                let _excluded = dispatcher.exclude();
                dispatcher.next(op, keys, stack);
                if counted::is_on() || autograd::accumulating() == Some(false) {
                    native.lock.passed.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                let pinned = Gil::with(|py| pin_result(&native, &torch, py, &*stack));
                if let Some(Err(error)) = pinned {
                    raise(&torch, error)
                }
            }
            Ok(Route::Session(arity)) => {
                let _excluded = dispatcher.exclude();
                let (native, torch) = (&*native, &torch);
                let incoming = Incoming {
                    native,
                    torch,
                    arity,
                    op,
                    keys,
                    stack,
                };
                incoming.pass()
            }
            Err(error) => {
                let _excluded = dispatcher.exclude();
                raise(&torch, error)
            }
        }
    }
}

/// Pins the result of a call if it is a gradient that autograd is about to leave in a leaf.
///
/// # Safety
/// The call returned, and its one result is the last value on the stack.
unsafe fn pin_result(
    native: &Native,
    torch: &Torch,
    py: Python<'_>,
    stack: &Stack,
) -> PyResult<()> {
    let Some(mut held) = native.lock.enter_as_it_is(py) else {
        return Ok(());
    };
    held.state.ops += 1;
    held.state.executor.drain_deaths(py)?;
    // SAFETY: as the caller promises.
    let results = unsafe { stack.last(1) }.unwrap_or(&[]);
    held.state.pin_accumulated(py, torch, results)
}

/// Puts the fallback on the dispatcher; see [`set_up`](crate::ffi::dispatcher::set_up).
#[pyfunction]
pub fn register_native(keys: Keys, libraries: Libraries, redispatch: usize) -> PyResult<()> {
    forking::watch();
    // SAFETY: `prepare_native` of torch internals, the one caller, found these values on this build of torch, and that
    // nobody uses the key.
    unsafe { dispatcher::set_up(keys, &libraries, redispatch, fallback) }
}
