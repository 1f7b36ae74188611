//! A torch storage that the program holds, known by a weak reference.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyWeakrefMethods, PyWeakrefReference};
use remat_core::{DeviceId, StorageId, TensorId};

use super::outside::Place;
use super::owner::Owner;
use crate::ffi::caching;
use crate::ffi::fastcall::call_one;
use crate::ffi::gil::{Attach, Object};
use crate::ffi::layout::Impl;
use crate::ffi::watch::{StorageObject, Strong, Watched};

/// `UntypedStorage._fix_weakref`, where it exists.
static FIX_WEAKREF: PyOnceLock<Option<Py<PyAny>>> = PyOnceLock::new();

/// Index of a live storage in the table. Indices are used again.
pub type LiveId = u32;

/// Description of a storage that has its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Contents {
    /// The tensor in the engine whose value it has.
    pub tensor: TensorId,
    /// The engine's storage of that tensor.
    pub sid: StorageId,
    /// Its size.
    pub bytes: u64,
    /// The device that holds it.
    pub device: DeviceId,
}

/// Stands for the tensor of a storage that the engine was not told of: an op made it that left no record. No id is as
/// high.
pub const UNTOLD: TensorId = TensorId(u32::MAX);

/// A weak reference to a storage.
pub(super) enum Watch {
    /// To its Python object.
    Object {
        weak: Object<PyWeakrefReference>,
        /// Address of the `UntypedStorage` object.
        address: usize,
    },
    /// To the storage itself.
    Storage(Watched),
}

/// A torch storage that the program holds, or held until it left the table. Its watch goes with this: a storage that is
/// taken in anew is watched anew after that.
pub struct Live {
    pub(super) watch: Watch,
    /// Address of the C++ storage, which lives until the weak reference is cleared.
    pub imp: Impl,
    /// A strong reference while recorded ops read the storage as a constant: no replay could bring it back once the
    /// program dropped it.
    pub hold: Option<Owner>,
    /// Recorded ops that read this storage as a constant.
    pub readers: u32,
    /// The tensor in the engine whose value the storage has now, or [`UNTOLD`].
    pub tensor: TensorId,
    /// Size of the storage.
    pub bytes: u64,
    /// The device that holds it.
    pub device: DeviceId,
    /// Whether the bytes are there.
    pub present: bool,
    /// The region of memory that torch did not allocate, if the storage lies over one. The region counts the bytes.
    pub outside: Option<Place>,
    /// Whether the bytes are main memory that torch allocated itself, beside the caching allocator.
    pub elsewhere: bool,
    /// Whether no op has written to it yet (it came from `empty`).
    pub blank: bool,
    /// Whether its bytes stay when it dies, for replays.
    pub(super) keeps: bool,
    /// Whether the program took its bytes away (`resize_(0)`). Access then raises, where plain torch would crash.
    pub freed: bool,
    /// Whether a native call that autograd records has read it, and found out whether it is a parameter's.
    pub classified: bool,
    /// Whether a parameter lies in it that an op read which autograd records.
    pub parameter: bool,
    /// The op that made it without a record, by the engine's number for it or 0, and which output it is.
    pub made: (u64, u32),
    /// The op that allocated it without a record, by that number, until an op with a record reads it or it becomes a
    /// constant for another reason; or 0.
    pub maker: u64,
    /// Bytes that an op of a planned step made without a record, and that a record would have let go of.
    pub(super) unrecorded: u64,
    /// A number that no other storage of the session has; ids are used again.
    pub serial: u64,
}

impl Watch {
    /// The addresses of the weak reference and of the object that it leads to, if it is one of Python's.
    pub(super) fn keys(&self) -> Option<(usize, usize)> {
        match self {
            Watch::Object { weak, address } => Some((weak.as_ptr() as usize, *address)),
            Watch::Storage(_) => None,
        }
    }
}

impl Live {
    /// Whether the storage has not died, as far as anybody can tell.
    #[inline]
    pub fn is_alive(&self, gil: impl Attach) -> bool {
        match &self.watch {
            Watch::Object { weak, .. } => gil
                .attach(|py| Ok(weak.bind(py).upgrade().is_some()))
                .unwrap_or(true), // the interpreter has ended
            Watch::Storage(watched) => watched.is_alive(),
        }
    }

    /// The weak reference, if the storage died and its bytes are there as long as this is.
    pub fn remains(&self) -> Option<&Watched> {
        let keeps = self.keeps && self.present && self.outside.is_none();
        match &self.watch {
            Watch::Storage(watched) if keeps && !watched.is_alive() => Some(watched),
            _ => None,
        }
    }

    /// Counts its bytes no more beside the caching allocator, if they are: they go.
    pub fn leave_elsewhere(&self) {
        if self.elsewhere {
            caching::sub_elsewhere(self.bytes);
        }
    }

    /// Keeps the storage alive, unless it died.
    pub fn keep(&self, gil: impl Attach) -> PyResult<Option<Owner>> {
        match &self.watch {
            Watch::Object { .. } => gil.attach(|py| {
                let object = self.upgrade(py)?;
                Ok(object.map(|object| Owner::Object(object.into_parts().0.into())))
            }),
            Watch::Storage(watched) => Ok(watched.lock().map(Owner::Storage)),
        }
    }

    /// A reference to the storage, unless it died.
    pub fn strong(&self, py: Python<'_>) -> PyResult<Option<Strong>> {
        match &self.watch {
            Watch::Storage(watched) => Ok(watched.lock()),
            Watch::Object { .. } => {
                let object = self.upgrade(py)?;
                // SAFETY: the object is in scope and owns the storage.
                let strong = |_| unsafe { Strong::new(self.imp.address()) };
                Ok(object.as_ref().and_then(strong))
            }
        }
    }

    /// The storage object, unless it died.
    pub fn upgrade<'py>(&self, py: Python<'py>) -> PyResult<Option<StorageObject<'py>>> {
        let weak = match &self.watch {
            Watch::Object { weak, .. } => weak,
            Watch::Storage(watched) => {
                return watched
                    .lock()
                    .map(|strong| strong.to_object(py))
                    .transpose();
            }
        };
        let Some(object) = weak.bind(py).upgrade() else {
            return Ok(None);
        };
        // In older torch the new reference owns the storage only after this call.
        let base = object.get_type();
        let fix = FIX_WEAKREF.get_or_try_init(py, || {
            let method = base.getattr_opt(intern!(py, "_fix_weakref"))?;
            PyResult::Ok(method.map(Bound::unbind))
        })?;
        if let Some(fix) = fix {
            call_one(fix, &object)?;
        }
        Ok(Some(StorageObject::of(object, None)))
    }
}
