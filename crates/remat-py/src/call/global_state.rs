//! The settings of process and thread under which an op runs: default dtype, precisions, libraries in use. A replay
//! runs under those of the op's first run.
//!
//! Every state that was seen has a number for as long as the process lives. Before each op the session asks for those
//! settings that are cheap to read. For the rest, Python says when a function was called that changes them.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;

use crate::ffi::gil::Attach;
use crate::ffi::settings;

/// The number of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateNumber(pub u32);

/// The state in force, as far as it is known.
pub struct GlobalState {
    /// Functions that tell a setting each.
    getters: Vec<Py<PyAny>>,
    /// Their answers when the state was last looked up.
    answers: Vec<Py<PyAny>>,
    /// The settings that the functions tell, as torch's C++ had them then; `None` where they are asked for in Python.
    read: Option<u64>,
    /// Whether the thread took denormal numbers for zero then.
    flushed: bool,
    /// Whether another setting may have changed since.
    changed: Arc<AtomicBool>,
    /// The state of then.
    number: StateNumber,
    /// `state_number(flushes_denormals) -> int`.
    state_number: Py<PyAny>,
    /// `enter_state(number, current)`.
    enter_state: Py<PyAny>,
}

impl GlobalState {
    /// Looks the functions up in the Python module `torch_internals`. The state is not known yet.
    ///
    /// # Errors
    /// `AttributeError` for a function that the module lacks.
    pub fn of(module: &Bound<'_, PyAny>) -> PyResult<GlobalState> {
        Ok(GlobalState {
            getters: module.getattr("GETTERS")?.extract()?,
            answers: Vec::new(),
            read: None,
            flushed: false,
            changed: Arc::new(AtomicBool::new(true)),
            number: StateNumber(0),
            state_number: module.getattr("state_number")?.unbind(),
            enter_state: module.getattr("enter_state")?.unbind(),
        })
    }

    /// The flag to set when a setting changed that is not read before each op.
    pub fn changed(&self) -> Arc<AtomicBool> {
        self.changed.clone()
    }

    /// The state in force.
    pub fn current(&mut self, gil: impl Attach) -> PyResult<StateNumber> {
        let flushes = flushes_denormals();
        // Read before it is written: a write would take the cache line from whoever changes settings.
        let changed =
            self.changed.load(Ordering::Acquire) && self.changed.swap(false, Ordering::AcqRel);
        let same = flushes == self.flushed && !changed;
        let read = settings::read();
        let same = match read {
            Some(_) => same & (std::mem::replace(&mut self.read, read) == read),
            None => same & gil.attach(|py| self.answer_alike(py))?,
        };
        if !same {
            self.flushed = flushes;
            let number = gil.attach(|py| {
                let number = self.state_number.bind(py).call1((flushes,))?;
                number.extract()
            })?;
            self.number = StateNumber(number);
        }
        Ok(self.number)
    }

    /// Whether the functions answer as they did.
    fn answer_alike(&mut self, py: Python<'_>) -> PyResult<bool> {
        let mut same = true;
        self.answers.resize_with(self.getters.len(), || py.None());
        for (getter, answer) in self.getters.iter().zip(&mut self.answers) {
            let now = getter.bind(py).call0()?;
            if !now.is(&*answer) {
                same &= now.eq(&*answer)?;
                *answer = now.unbind();
            }
        }
        Ok(same)
    }

    /// Runs an action under a state, and puts back the one in force before.
    pub fn under<T>(
        &mut self,
        py: Python<'_>,
        state: StateNumber,
        action: impl FnOnce() -> PyResult<T>,
    ) -> PyResult<T> {
        let before = self.current(py)?;
        if state == before {
            return action();
        }
        let enter = self.enter_state.bind(py);
        enter.call1((state.0, before.0))?;
        let done = action();
        enter.call1((before.0, state.0))?;
        done
    }
}

/// Whether this thread takes denormal numbers for zero. The processor answers.
fn flushes_denormals() -> bool {
    black_box(f64::MIN_POSITIVE) / black_box(2.0) == 0.0
}
