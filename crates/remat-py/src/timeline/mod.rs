//! The timeline of a run: what took memory and time, op by op, from the lines of the program that asked for it.
//!
//! | file | concept |
//! | --- | --- |
//! | `blocks` | the memory of storages, by kind |
//! | `places` | ops at their places in a step, each with its module and line |
//! | `event` | the events of a step |
//! | `level` | bytes by kind from event to event |
//! | `steps` | steps that are kept in detail, and all others in a few numbers |
//! | `recorder` | all of these, told of the session's ops |
//! | `memory` | the same, told of its storages |
//! | `told` | the recording as JSON |
//!
//! A step is kept in detail if it is the first, the last or the worst, or the first of its kind. So a recording stays
//! as small as a few steps, however long the run is.

mod blocks;
mod event;
mod level;
mod memory;
mod places;
mod recorder;
mod steps;
mod told;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;

pub use blocks::MemoryKind;
pub use places::Site;
pub use recorder::{Coming, Looked, Recorder};

use crate::ffi::errors::value_error;

/// A recording of a run, as Python sees it. The session is amid an op now and then while it is read (a signal ends the
/// program), so it has a lock of its own.
#[pyclass(frozen, module = "remat._native")]
pub struct Recording {
    recorder: Arc<Mutex<Recorder>>,
}

#[pymethods]
impl Recording {
    /// A recording that begins now.
    #[new]
    fn new() -> Recording {
        Recording {
            recorder: Arc::new(Mutex::new(Recorder::default())),
        }
    }

    /// An optimizer's step begins, or ended.
    fn updating(&self, begins: bool) {
        locked(&self.recorder).updating(begins);
    }

    /// Ends the last step, and tells all that was recorded as JSON.
    ///
    /// # Errors
    /// `ValueError` if it cannot be written as JSON.
    fn told(&self) -> PyResult<String> {
        let told = locked(&self.recorder).told();
        told.map_err(value_error)
    }
}

fn locked(recorder: &Mutex<Recorder>) -> MutexGuard<'_, Recorder> {
    recorder.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A recording under way, and the Python functions that know the program.
pub struct Timeline {
    recorder: Arc<Mutex<Recorder>>,
    /// `site(backward) -> (module, file, line, function, sequence | None)`: of the op that is about to run.
    pub site: Py<PyAny>,
    /// `has_optimizers() -> bool`: whether steps will end with an optimizer's.
    pub has_optimizers: Py<PyAny>,
}

impl Timeline {
    /// The timeline that a recording is made of.
    pub fn of(recording: &Recording, site: Py<PyAny>, has_optimizers: Py<PyAny>) -> Self {
        Timeline {
            recorder: recording.recorder.clone(),
            site,
            has_optimizers,
        }
    }

    /// Tells the recorder, and asks it. No Python runs meanwhile.
    pub fn tell<R>(&self, told: impl FnOnce(&mut Recorder) -> R) -> R {
        told(&mut locked(&self.recorder))
    }
}
