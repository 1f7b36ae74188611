//! The settings of process and thread under which an op runs: default dtype, precisions, libraries in use. A replay
//! runs under those of the op's first run.
//!
//! Every state that was seen has a number for as long as the process lives. Before each op the session asks for those
//! settings that are cheap to read. For the rest, Python says when a function was called that changes them.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;

use crate::ffi::autocast::Autocast;
use crate::ffi::gil::Attach;
use crate::ffi::settings;

/// The number of a state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StateNumber {
    /// The number of the settings.
    settings: u32,
    autocast: Autocast,
}

impl StateNumber {
    /// In one number.
    pub fn bits(self) -> u64 {
        u64::from(self.settings) << 16 | u64::from(self.autocast.number())
    }
}

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
    /// The number of the settings of then.
    number: u32,
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
            number: 0,
            state_number: module.getattr("state_number")?.unbind(),
            enter_state: module.getattr("enter_state")?.unbind(),
        })
    }

    /// The flag to set when a setting changed that is not read before each op.
    pub fn changed(&self) -> Arc<AtomicBool> {
        self.changed.clone()
    }

    /// The state in force, with autocast as it is for the call.
    pub fn current(&mut self, gil: impl Attach, autocast: Autocast) -> PyResult<StateNumber> {
        let flushes = flushes_denormals();
        // Read before it is written: a write would take the cache line from whoever changes settings.
        let changed =
            self.changed.load(Ordering::Acquire) && self.changed.swap(false, Ordering::AcqRel);
        let read = settings::read();
        let same = flushes == self.flushed && !changed && self.read == read;
        if !same || read.is_none() {
            let looked_up = gil.attach(|py| self.look_up(py, flushes, same));
            if looked_up.is_err() {
                self.changed.store(true, Ordering::Release);
            }
            looked_up?;
            (self.read, self.flushed) = (read, flushes);
        }
        Ok(StateNumber {
            settings: self.number,
            autocast,
        })
    }

    /// Looks up the number of the settings, unless they are the `same` and the functions answer as they did.
    fn look_up(&mut self, py: Python<'_>, flushes: bool, same: bool) -> PyResult<()> {
        if !self.answer_alike(py)? || !same {
            let number = self.state_number.bind(py).call1((flushes,))?;
            self.number = number.extract()?;
        }
        Ok(())
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

    /// Runs an action under a state, and puts back the one in force before, whatever fails.
    pub fn under<T>(
        &mut self,
        py: Python<'_>,
        state: StateNumber,
        action: impl FnOnce() -> PyResult<T>,
    ) -> PyResult<T> {
        let before = self.current(py, Autocast::current())?;
        let _autocast = (state.autocast != before.autocast).then(|| state.autocast.enter());
        if state.settings == before.settings {
            return action();
        }
        let enter = self.enter_state.bind(py);
        let entered = enter.call1((state.settings, before.settings));
        let done = entered.and_then(|_| action());
        let back = || enter.call1((before.settings, state.settings));
        // An interrupt may have struck amid the settings: then they are put back once more.
        let put_back = back().or_else(|error| back().and(Err(error)));
        if put_back.is_err() {
            self.changed.store(true, Ordering::Release);
        }
        put_back.and(done)
    }
}

/// Whether this thread takes denormal numbers for zero. The processor answers.
fn flushes_denormals() -> bool {
    black_box(f64::MIN_POSITIVE) / black_box(2.0) == 0.0
}
