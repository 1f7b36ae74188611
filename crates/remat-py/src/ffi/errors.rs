//! The Python exceptions that are raised. Those of Remat's own are classes of the package, which Python code defines.

use std::fmt::Display;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// A `ValueError` that says what an error says.
pub fn value_error(error: impl Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// A `remat.RematError` with a message.
pub fn remat_error(py: Python<'_>, message: &str) -> PyErr {
    let class = py
        .import("remat")
        .and_then(|package| package.getattr("RematError"));
    raised(class.and_then(|class| class.call1((message,))))
}

/// The class `remat.BudgetError`.
pub fn budget_error(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    py.import("remat")?.getattr("BudgetError")
}

/// The error to raise: the exception that was built, or the error that building it met.
pub fn raised(built: PyResult<Bound<'_, PyAny>>) -> PyErr {
    match built {
        Ok(error) => PyErr::from_value(error),
        Err(error) => error,
    }
}

/// The error of an op, without the Python frames that led from the session to the op.
pub fn as_torch_raises(own_frames_dropped: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
    let py = own_frames_dropped.py();
    raised(own_frames_dropped.call1((error.into_value(py),)))
}

/// Runs an action while an error of Python's may be on its way through C++, which leaves it set in the interpreter.
pub fn error_aside<R>(py: Python<'_>, action: impl FnOnce() -> R) -> R {
    let error = PyErr::take(py);
    let done = action();
    if let Some(error) = error {
        error.restore(py);
    }
    done
}
