//! A call of an op, as torch dispatches it.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::func::Func;

/// An op and the Python arguments it is called with.
#[derive(Clone, Copy)]
pub struct Invocation<'a, 'py> {
    /// The op.
    pub func: &'a Arc<Func>,
    /// Positional arguments.
    pub args: &'a Bound<'py, PyTuple>,
    /// Keyword arguments.
    pub kwargs: Option<&'a Bound<'py, PyDict>>,
}

impl<'py> Invocation<'_, 'py> {
    /// The GIL, which the arguments prove to be held.
    pub fn py(&self) -> Python<'py> {
        self.args.py()
    }

    /// Whether a strided nested tensor is among the positional arguments; `any_nested` is torch's way to tell.
    pub fn any_nested(&self, any_nested: &Py<PyAny>) -> PyResult<bool> {
        any_nested.bind(self.py()).call1((self.args,))?.extract()
    }

    /// Runs the op.
    pub fn call(&self) -> PyResult<Bound<'py, PyAny>> {
        let function = self.func.call.bind(self.py());
        function.call(self.args, self.kwargs)
    }
}
