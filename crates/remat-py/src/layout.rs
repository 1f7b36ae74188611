//! Zero-copy moves between torch storages, and the guard on evicted ones.
//!
//! Stock torch has no call that hands the bytes of one storage to another, and a storage whose bytes were
//! freed crashes the process when an op outside the dispatch mode touches it. Both are solved inside
//! `c10::StorageImpl`: three words hold its `DataPtr` (data, deleter, context), and three flags make every
//! access to the data raise a Python error. Their offsets are not an interface, so they are never assumed:
//! Python finds them on probe storages when the package is first used (`remat._torch_internals.eager.probe_layout`),
//! verifies the effect of swapping and of the flags on those probes, and refuses to start if anything differs.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// Byte offsets inside `c10::StorageImpl`, found and verified by the probe.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// First of the three words of the `DataPtr` (data, deleter, context).
    pub data_ptr: usize,
    /// First of the three guard flags (check, throw on mutable, throw on immutable access).
    pub guard: usize,
}

/// Address of a live `c10::StorageImpl`, read from `UntypedStorage._cdata` while the caller holds a
/// reference to the Python object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Impl(usize);

impl Impl {
    /// The implementation behind a storage object.
    pub fn of(storage: &Bound<'_, PyAny>) -> PyResult<Impl> {
        let address: usize = storage
            .getattr(pyo3::intern!(storage.py(), "_cdata"))?
            .extract()?;
        if address == 0 || address % std::mem::align_of::<usize>() != 0 {
            return Err(PyRuntimeError::new_err(
                "a torch storage reports an impossible address",
            ));
        }
        Ok(Impl(address))
    }
}

impl Layout {
    /// Exchanges the bytes of two storages. Sizes are not touched: the caller keeps them meaningful.
    pub fn swap(&self, _gil: Python<'_>, a: Impl, b: Impl) {
        if a == b {
            return;
        }
        let (a, b) = (
            (a.0 + self.data_ptr) as *mut [usize; 3],
            (b.0 + self.data_ptr) as *mut [usize; 3],
        );
        // SAFETY: both addresses come from `_cdata` of storages that the caller keeps alive, so they point at
        // live `StorageImpl`s. The probe verified on this very build of torch that the three words at this
        // offset are the storage's `DataPtr` and that exchanging them exchanges the bytes. A `DataPtr` is
        // trivially relocatable (a pointer, a function pointer and a context). The GIL and the session's lock
        // are held, and the storages are distinct, so the two regions do not overlap.
        unsafe { std::ptr::swap_nonoverlapping(a, b, 1) }
    }

    /// Copies the bytes of one storage into another.
    pub fn copy(&self, gil: Python<'_>, from: Impl, to: Impl, bytes: usize) {
        let (from, to) = (self.origin(gil, from).data, self.origin(gil, to).data);
        if from == 0 || to == 0 || from == to {
            return;
        }
        // SAFETY: both are live storages of torch's CPU allocator that hold `bytes` bytes each: the caller read the size off the one
        // and made the other as large. They are distinct allocations, so the ranges do not overlap; the session's lock is
        // held and no op runs, so nobody writes to either.
        unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes) }
    }

    /// Where a storage's bytes are, and the function that gives them back: together they tell memory that torch
    /// allocated from memory that was handed to it.
    pub fn origin(&self, _gil: Python<'_>, storage: Impl) -> Origin {
        let words = (storage.0 + self.data_ptr) as *const [usize; 3];
        // SAFETY: as in `swap`; the words are only read, and compared as numbers.
        let [data, deleter, _] = unsafe { words.read() };
        Origin { data, deleter }
    }

    /// Makes every access to the storage's data raise a Python error (`true`) or work again (`false`).
    pub fn set_guard(&self, _gil: Python<'_>, storage: Impl, raised: Guard) {
        let flags = (storage.0 + self.guard) as *mut [u8; 3];
        // SAFETY: as in `swap`; the probe verified that these three bytes are `bool` fields of `StorageImpl`
        // which torch itself sets for fake tensors, with exactly this effect; 0 and 1 are valid `bool`s.
        unsafe {
            flags.write(if matches!(raised, Guard::Up) {
                [1; 3]
            } else {
                [0; 3]
            })
        }
    }
}

/// Where bytes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Address of the first byte; 0 if there are none.
    pub data: usize,
    /// Address of the function that frees them.
    pub deleter: usize,
}

/// Whether a storage refuses access to its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// Access raises.
    Up,
    /// Access works.
    Down,
}
