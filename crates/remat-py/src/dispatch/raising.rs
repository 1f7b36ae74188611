//! Errors of the fallback. C++ raises them, so an op of Python's raises what was kept here.

use std::cell::RefCell;
use std::sync::OnceLock;

use pyo3::prelude::*;

use crate::ffi::dispatcher::{Op, Torch};

/// The op that raises the error of this thread.
static RAISES: OnceLock<Op> = OnceLock::new();

thread_local! {
    static ERROR: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Raises errors by this op from now on, unless there is one already.
pub(super) fn raise_by(op: Op) {
    let _ = RAISES.set(op);
}

/// Raises an error in the caller of the op.
///
/// # Safety
/// Nothing that torch's unwinding skips is in use.
pub(super) unsafe fn raise(torch: &Torch, error: PyErr) -> ! {
    ERROR.with_borrow_mut(|slot| *slot = Some(error));
    if let Some(op) = RAISES.get() {
        // SAFETY: the op takes and returns nothing, and has a kernel.
        unsafe { torch.dispatcher.call_without_arguments(*op) }
    }
    // The op raises: there is no way to go on with a call that was refused.
    std::process::abort()
}

/// Raises the error that the fallback met on this thread.
#[pyfunction]
pub fn raise_native() -> PyResult<()> {
    match ERROR.with_borrow_mut(Option::take) {
        Some(error) => Err(error),
        None => Ok(()),
    }
}
