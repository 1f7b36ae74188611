//! Functions and variables of libraries that are loaded, by their names.

use std::ffi::{CStr, CString, c_void};
use std::ptr::NonNull;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// A library that is loaded, and stays so.
#[derive(Clone, Copy, Debug)]
pub struct Library(NonNull<c_void>);

// SAFETY: a handle is a name for the C library, whose functions any thread may call.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl Library {
    /// The library at a path, if it is loaded.
    pub fn loaded(path: &str) -> Option<Library> {
        let path = CString::new(path).ok()?;
        // SAFETY: the text ends with null. `RTLD_NOLOAD` loads nothing; the handle is never closed, so addresses stay
        // valid.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_NOW) };
        NonNull::new(handle).map(Library)
    }

    /// The address of a function, or of this thread's variable.
    pub fn find(self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: the text ends with null, and the handle is never closed.
        NonNull::new(unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) })
    }
}

/// The address of a function in a library that is loaded.
///
/// # Errors
/// `RuntimeError` that names what is missing.
pub fn symbol(library: &str, name: &str) -> PyResult<*mut c_void> {
    let text = CString::new(name).ok();
    let found = text.and_then(|text| Library::loaded(library)?.find(&text));
    let found = found.ok_or_else(|| PyRuntimeError::new_err(format!("{library} has no {name}")))?;
    Ok(found.as_ptr())
}
