//! Refusals of ops that exceed the budget while they run unwatched.

use pyo3::prelude::*;
use remat_core::{Bytes, Error};

use super::native;
use super::raising::raise;
use super::state::State;
use crate::ffi::counted;
use crate::ffi::dispatcher::{Op, Torch};
use crate::ffi::gil::Gil;

/// Has ops refused that exceed the budget while they run unwatched.
pub(super) fn set_up() {
    counted::refuse_by(refuse);
}

/// Refuses the op that runs unwatched on this thread: with the block that it asks for, so many bytes would be there.
///
/// # Safety
/// As for [`raise`]; the address is that of an op.
unsafe fn refuse(op: usize, bytes: u64) {
    let Some(torch) = Torch::get() else {
        return;
    };
    // SAFETY: as the caller promises.
    let op = unsafe { *(op as *const Op) };
    let error = Gil::with(|py| {
        let lock = native::active_lock()?;
        let mut held = lock.enter(py)?;
        Some(held.state.refused_unwatched(py, op, bytes))
    });
    if let Some(error) = error.flatten() {
        // SAFETY: as the caller promises.
        unsafe { raise(torch, error) }
    }
}

impl State {
    /// The error of an op that runs unwatched, with which so many bytes would be there.
    fn refused_unwatched(&mut self, py: Python<'_>, op: Op, bytes: u64) -> PyErr {
        // SAFETY: the dispatcher passed the op to the fallback.
        self.set_current(&unsafe { op.name_in_python() });
        let device = self.executor.budget_device;
        let error = Error::Budget {
            device,
            budget: self.executor.engine.budget(device).unwrap_or(Bytes(0)),
            needed: Bytes(bytes),
            smallest: Bytes(bytes),
        };
        self.executor.refusal(py, &error)
    }
}
