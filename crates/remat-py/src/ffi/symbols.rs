//! Functions and variables of libraries that are loaded, by their names.

use std::ffi::{CStr, CString, c_void};
use std::mem::transmute_copy;
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

/// A function of a library that is loaded.
///
/// # Errors
/// `RuntimeError` that names what is missing.
///
/// # Safety
/// As for [`function_at`].
pub unsafe fn function<F: Copy>(library: &str, name: &str) -> PyResult<F> {
    // SAFETY: as the caller promises. The library is never unloaded.
    symbol(library, name).map(|found| unsafe { function_at(found) })
}

/// A function of any library that the process has loaded.
///
/// # Safety
/// As for [`function_at`], and that library is never unloaded.
pub unsafe fn loaded_function<F: Copy>(name: &CStr) -> Option<F> {
    // SAFETY: the text ends with null.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    // SAFETY: as the caller promises.
    NonNull::new(found).map(|found| unsafe { function_at(found.as_ptr()) })
}

/// The function at an address.
///
/// # Safety
/// `F` is a pointer to a function, with the arguments, the result and the calling convention of the one that is there.
unsafe fn function_at<F: Copy>(address: *mut c_void) -> F {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: both are pointers of one size, and the caller vouches for the type. The address is not null.
    unsafe { transmute_copy(&address) }
}
