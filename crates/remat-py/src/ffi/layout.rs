//! Zero-copy moves between torch storages, and the guard on evicted ones.
//!
//! Stock torch has no call that hands the bytes of one storage to another, and a storage whose bytes were
//! freed crashes the process when an op outside the dispatch mode touches it. Both are solved inside
//! `c10::StorageImpl`: three words hold its `DataPtr` (data, deleter, context), and three flags make every
//! access to the data raise a Python error. Their offsets are not an interface, so they are never assumed:
//! Python finds them on probe storages when the package is first used (`probe_layout`), verifies the effect
//! of swapping and of the flags on those probes, and refuses to start if anything differs.
//!
//! # Which storages are alive
//! [`Impl`] is an address, so every function that follows one is unsafe: the storage must still be there. Two
//! facts prove it, and each call below this module names one of them.
//!
//! - *Owned*: a Python reference to the `UntypedStorage` is in scope. It owns the `StorageImpl`.
//! - *Not dying*: the GIL is held, and the weak reference to the `UntypedStorage` still leads to it. Python clears weak
//!   references under the GIL and before the `StorageImpl` is freed.

use std::ffi::c_void;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use super::caching;

/// `c10::DeleterFnPtr`.
type Deleter = unsafe extern "C" fn(*mut c_void);

/// Byte offsets inside `c10::StorageImpl`, found and verified by the probe.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// First of the three words of the `DataPtr` (data, deleter, context).
    pub data_ptr: usize,
    /// First of the three guard flags (check, throw on mutable, throw on immutable access).
    pub guard: usize,
}

/// Address of a `c10::StorageImpl`, read from `UntypedStorage._cdata`. A storage object keeps one address as long
/// as it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Impl(usize);

impl Impl {
    /// The implementation behind a storage object.
    ///
    /// # Errors
    /// `RuntimeError` if the object reports an address at which no object can lie.
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

    /// The implementation at an address that torch gave.
    pub fn at(address: usize) -> Impl {
        Impl(address)
    }

    /// Its address.
    pub fn address(self) -> usize {
        self.0
    }
}

impl Layout {
    /// Exchanges the bytes of two storages. Sizes are not exchanged.
    ///
    /// # Safety
    /// - Both storages are alive (see the module's documentation), and the layout is that of this build of torch.
    /// - No op reads or writes either storage meanwhile.
    /// - Whoever reaches the bytes of a storage afterwards finds as many as its size says, or a raised guard.
    pub unsafe fn swap(&self, _gil: Python<'_>, a: Impl, b: Impl) {
        if a == b {
            return;
        }
        let (a, b) = (
            (a.0 + self.data_ptr) as *mut [usize; 3],
            (b.0 + self.data_ptr) as *mut [usize; 3],
        );
        // SAFETY: the caller promises that both storages are alive, so both addresses point into `StorageImpl`s, and
        // that the three words at this offset are the `DataPtr`. A `DataPtr` is trivially relocatable (a pointer, a
        // function pointer and a context). The storages are distinct, so the two regions do not overlap.
        unsafe { std::ptr::swap_nonoverlapping(a, b, 1) }
    }

    /// Frees a storage's bytes, as torch does once the storage dies.
    ///
    /// # Safety
    /// - The storage is alive (see the module's documentation), or died and keeps its bytes for a weak reference; the
    ///   layout is that of this build of torch.
    /// - No op reads or writes it meanwhile.
    /// - Whoever reaches for its bytes afterwards finds a size of none, or a raised guard.
    pub unsafe fn free(&self, _gil: Python<'_>, storage: Impl) {
        let words = (storage.0 + self.data_ptr) as *mut [usize; 3];
        // SAFETY: the caller promises that the address points into a `StorageImpl` whose `DataPtr` is at this offset.
        // Without data and context it owns nothing: torch calls no deleter for it. The context that it owned is given
        // back here, once, by the function that is stored with it for that purpose.
        unsafe {
            let [_, deleter, context] = words.read();
            words.write([0, deleter, 0]);
            if context != 0 {
                let deleter = std::mem::transmute::<usize, Deleter>(deleter);
                deleter(context as *mut c_void);
            }
        }
    }

    /// Has a storage's bytes [counted](super::counted) no more. Whether they were counted.
    ///
    /// # Safety
    /// The storage is alive, the layout is that of this build of torch, and nobody changes its bytes' place meanwhile.
    pub unsafe fn count_no_more(&self, _gil: Python<'_>, storage: Impl) -> bool {
        // SAFETY: the caller promises that the address points into a `StorageImpl` whose `DataPtr` is at this offset.
        unsafe { caching::count_no_more((storage.0 + self.data_ptr) as *mut caching::DataPtr) }
    }

    /// Copies bytes from one storage to another; nothing is copied where either has none.
    ///
    /// # Safety
    /// - As for [`swap`](Self::swap), the first two points.
    /// - Both storages lie in main memory and hold at least `bytes` bytes, which do not overlap unless they are the
    ///   same.
    pub unsafe fn copy(&self, gil: Python<'_>, from: Impl, to: Impl, bytes: usize) {
        // SAFETY: the caller promises that both storages are alive.
        let (from, to) = unsafe { (self.origin(gil, from).data, self.origin(gil, to).data) };
        if from == 0 || to == 0 || from == to {
            return;
        }
        // SAFETY: the caller promises that both ranges hold `bytes` bytes, are used by nobody else and do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes) }
    }

    /// The place of a storage's bytes, and the function that frees them. The second tells memory that torch allocated
    /// from memory that was handed to it.
    ///
    /// # Safety
    /// The storage is alive (see the module's documentation), and the layout is that of this build of torch.
    pub unsafe fn origin(&self, _gil: Python<'_>, storage: Impl) -> Origin {
        let words = (storage.0 + self.data_ptr) as *const [usize; 3];
        // SAFETY: the caller promises that the address points into a `StorageImpl` whose `DataPtr` is at this offset.
        // Its words are plain numbers here.
        let [data, deleter, _] = unsafe { words.read() };
        Origin { data, deleter }
    }

    /// Makes every access to the storage's data raise a Python error, or work again.
    ///
    /// # Safety
    /// - The storage is alive (see the module's documentation), and the layout is that of this build of torch.
    /// - A guard is lowered only where the storage has as many bytes as its size says.
    pub unsafe fn set_guard(&self, _gil: Python<'_>, storage: Impl, guard: Guard) {
        let flags = (storage.0 + self.guard) as *mut [u8; 3];
        // SAFETY: the caller promises that the address points into a `StorageImpl` with three `bool` fields at this
        // offset. Torch itself sets them for fake tensors, with exactly this effect; 0 and 1 are valid `bool`s.
        unsafe { flags.write([u8::from(guard == Guard::Up); 3]) }
    }
}

/// The origin of a storage's bytes.
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
