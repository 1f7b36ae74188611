//! Deaths of storages that are known by weak references of Python's.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use pyo3::prelude::*;

/// Addresses of weak references to storages that died.
#[derive(Default)]
pub(super) struct Queue {
    /// Whether there are any, to be asked before each op.
    any: AtomicBool,
    addresses: Mutex<Vec<usize>>,
}

impl Queue {
    fn push(&self, address: usize) {
        let mut addresses = self.addresses.lock();
        let addresses = addresses.as_mut().unwrap_or_else(|e| e.get_mut());
        addresses.push(address);
        self.any.store(true, Ordering::Release);
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Acquire)
    }

    pub(super) fn pop(&self) -> Option<usize> {
        if self.is_empty() {
            return None;
        }
        let mut addresses = self.addresses.lock();
        let addresses = addresses.as_mut().unwrap_or_else(|e| e.get_mut());
        let popped = addresses.pop();
        self.any.store(!addresses.is_empty(), Ordering::Release);
        popped
    }
}

/// The queue of storages that died, in whatever thread. Python calls it under the GIL, before the storage is freed.
#[pyclass(frozen, module = "remat._native")]
pub struct Deaths {
    pub(super) queue: Arc<Queue>,
}

#[pymethods]
impl Deaths {
    fn __call__(&self, weak: &Bound<'_, PyAny>) {
        self.queue.push(weak.as_ptr() as usize);
    }
}
