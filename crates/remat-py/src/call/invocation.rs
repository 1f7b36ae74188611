//! A call of an op, as torch dispatches it.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use super::func::Func;
use crate::ffi::autocast::Autocast;
use crate::ffi::dispatcher::{Dispatcher, count_versions};

/// How a call came that was handed to Python.
///
/// Torch turns autocast and the counting of versions off while Python handles a call. For ops that the op's kernel
/// calls they are on in plain eager, unless a kernel above has turned them off. Those kernels run once: one that leaves
/// a key on has nothing to do for it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Surroundings {
    /// Autocast, as it is on within the op.
    pub autocast: Autocast,
    /// Whether ops within the op count versions.
    pub counts_versions: bool,
}

impl Surroundings {
    /// As it is for a call that comes to the fallback.
    pub fn of(dispatcher: &Dispatcher) -> Surroundings {
        Surroundings {
            autocast: Autocast::current(),
            counts_versions: dispatcher.counts_versions(),
        }
    }
}

/// An op and the Python arguments it is called with.
#[derive(Clone, Copy)]
pub struct Invocation<'a, 'py> {
    /// The op.
    pub func: &'a Arc<Func>,
    /// Positional arguments.
    pub args: &'a Bound<'py, PyTuple>,
    /// Keyword arguments.
    pub kwargs: Option<&'a Bound<'py, PyDict>>,
    /// How it came.
    pub surroundings: Surroundings,
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

    /// Whether a gradient is asked of a tensor among the arguments.
    pub fn requires_grad(&self) -> PyResult<bool> {
        let named = self.kwargs.map(|kwargs| kwargs.values());
        any_requires_grad(self.args.as_any()).and_then(|found| match named {
            Some(named) if !found => any_requires_grad(named.as_any()),
            _ => Ok(found),
        })
    }

    /// Runs the op, as `call` does that, with autocast and the counting of versions as its kernel finds them in plain
    /// eager.
    pub fn within<T>(&self, call: impl FnOnce() -> T) -> T {
        let _autocast = self.surroundings.autocast.reopen();
        let counts_versions = self.surroundings.counts_versions && self.func.is_writing();
        let _versions = counts_versions.then(count_versions);
        call()
    }

    /// Runs the op.
    pub fn call(&self) -> PyResult<Bound<'py, PyAny>> {
        let function = self.func.call.bind(self.py());
        self.within(|| function.call(self.args, self.kwargs))
    }
}

/// Whether a gradient is asked of one of these, or of one in a list among them.
fn any_requires_grad(values: &Bound<'_, PyAny>) -> PyResult<bool> {
    for value in values.try_iter()? {
        let value = value?;
        let found = if value.is_exact_instance_of::<PyList>() {
            any_requires_grad(&value)?
        } else {
            let asked = value.getattr_opt(pyo3::intern!(value.py(), "requires_grad"))?;
            asked.map_or(Ok(false), |asked| asked.is_truthy())?
        };
        if found {
            return Ok(true);
        }
    }
    Ok(false)
}
