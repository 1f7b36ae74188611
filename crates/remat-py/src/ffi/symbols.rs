//! Functions and variables of libraries that are loaded, by their names.

use std::ffi::{CString, c_void};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// The address of a function, or of this thread's variable, in a library that is loaded.
pub fn symbol(library: &str, name: &str) -> PyResult<*mut c_void> {
    let missing = || PyRuntimeError::new_err(format!("{library} has no {name}"));
    let (path, text) = (CString::new(library), CString::new(name));
    let (Ok(path), Ok(text)) = (path, text) else {
        return Err(missing());
    };
    // SAFETY: both texts end with null. `RTLD_NOLOAD` loads nothing; the handle is never closed, so the address stays
    // valid.
    let found = unsafe {
        let handle = libc::dlopen(path.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_NOW);
        if handle.is_null() {
            return Err(missing());
        }
        libc::dlsym(handle, text.as_ptr())
    };
    if found.is_null() {
        return Err(missing());
    }
    Ok(found)
}
