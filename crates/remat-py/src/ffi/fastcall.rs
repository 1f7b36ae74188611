//! Calls to torch's C methods without the tuples that the stable ABI would otherwise build.

use pyo3::ffi;
use pyo3::prelude::*;

/// `callable(arg)`.
#[inline]
pub fn call_one<'py>(callable: &Py<PyAny>, arg: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: both pointers are live Python objects owned by the references passed in, the argument list ends
    // with null as the function demands, and the GIL is held (`arg` is bound). A null result carries an
    // exception, which `from_owned_ptr_or_err` fetches.
    unsafe {
        let result = ffi::PyObject_CallFunctionObjArgs(
            callable.as_ptr(),
            arg.as_ptr(),
            std::ptr::null_mut::<ffi::PyObject>(),
        );
        Bound::from_owned_ptr_or_err(arg.py(), result)
    }
}
