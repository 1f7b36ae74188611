//! References that keep a torch storage alive.

use pyo3::prelude::*;

use crate::ffi::gil::Object;
use crate::ffi::layout::Impl;
use crate::ffi::watch::{StorageObject, Strong};

/// A reference that owns a storage.
pub enum Owner {
    /// To its Python object.
    Object(Object),
    /// To the storage itself.
    Storage(Strong),
}

impl Owner {
    /// The C++ storage.
    pub fn imp(&self, py: Python<'_>) -> PyResult<Impl> {
        match self {
            Owner::Object(object) => Impl::of(object.bind(py)),
            Owner::Storage(strong) => Ok(Impl::at(strong.address())),
        }
    }

    /// The Python object.
    pub fn object<'py>(&self, py: Python<'py>) -> PyResult<StorageObject<'py>> {
        match self {
            Owner::Object(object) => Ok(StorageObject::of(object.bind(py).clone(), None)),
            Owner::Storage(strong) => strong.to_object(py),
        }
    }

    /// Whether nobody else owns the storage. `use_count` says how many owners a storage has in C++.
    pub fn is_sole(&self, py: Python<'_>, use_count: &Py<PyAny>) -> PyResult<bool> {
        match self {
            Owner::Storage(strong) => strong.is_sole(py),
            // SAFETY: this owner has a reference to the object, and the GIL is held, as `py` proves.
            Owner::Object(object) if unsafe { pyo3::ffi::Py_REFCNT(object.as_ptr()) } > 1 => {
                Ok(false)
            }
            Owner::Object(object) => {
                let owners: usize = use_count.bind(py).call1((&**object,))?.extract()?;
                Ok(owners == 1)
            }
        }
    }
}
