//! The states of random generators before an op drew from them.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::ffi::gil::Object;

/// States of the generators that an op draws from.
pub enum RandomState {
    /// Generators and their states, as Python lists them.
    Listed(Object),
    /// The bytes of the CPU's default generator.
    Default(Box<[u8]>),
}

impl RandomState {
    /// The list of generators and states; `decode` makes it of the default generator's bytes.
    pub fn listed<'py>(&self, py: Python<'py>, decode: &Py<PyAny>) -> PyResult<Bound<'py, PyAny>> {
        match self {
            RandomState::Listed(states) => Ok(states.bind(py).clone()),
            RandomState::Default(bytes) => decode.bind(py).call1((PyBytes::new(py, bytes),)),
        }
    }
}
