//! Results that a plan has use for after the program let go of them. Torch frees a storage's bytes with the last
//! reference to it; those of kept results stay where they are, and go over to a storage of the table's own.
//!
//! Nobody refers to the storage meanwhile that did not before: autograd adds to a gradient in place only if nobody else
//! owns it.

use pyo3::prelude::*;
use remat_core::StorageId;

use super::state::Executor;
use crate::ffi::layout::Impl;
use crate::ffi::watch::{Strong, Watched};
use crate::tracking::buffers::{Buffer, Scratch};
use crate::tracking::live::Live;
use crate::tracking::owner::Owner;

impl Executor {
    /// Has the bytes stay of what the op announced last made and a plan keeps.
    #[inline]
    pub fn keep_results(&mut self) {
        if !self.engine.kept_results().is_empty() {
            self.keep_each();
        }
    }

    #[cold]
    fn keep_each(&mut self) {
        for at in 0..self.engine.kept_results().len() {
            let sid = self.engine.kept_results()[at];
            let keeps = match *self.storages.buffer(sid) {
                Buffer::Live(id) => self.storages.keep_bytes(id),
                Buffer::Empty | Buffer::Scratch(_) => false,
            };
            if !keeps {
                self.engine.do_not_keep(sid);
            }
        }
    }

    /// Takes over the bytes of a storage that died. The engine says next whether they stay. Returns whether there were
    /// any: the program may have taken them away.
    pub(super) fn inherit(
        &mut self,
        py: Python<'_>,
        sid: StorageId,
        former: &Live,
        remains: &Watched,
    ) -> PyResult<bool> {
        let dead = Impl::at(remains.address());
        // SAFETY: the weak reference keeps the memory of the storage, which nobody else reaches any more.
        let origin = unsafe { self.internals.layout.origin(py, dead) };
        if origin.data == 0 {
            return Ok(false);
        }
        let device = &self.devices[former.device.0 as usize].name;
        let storage_over = self.internals.storage_over.bind(py);
        let heir = storage_over.call1((origin.data, device, former.bytes))?;
        let imp = Impl::of(&heir)?;
        // SAFETY: `heir` is in scope and owns the other storage, of as many bytes. Both describe the same ones; what
        // owns them goes over to the heir, and the one that died gets what owns nothing.
        unsafe { self.internals.layout.swap(py, imp, dead) };
        // SAFETY: `heir` owns the storage.
        let strong = unsafe { Strong::new(imp.address()) };
        let scratch = Scratch {
            owner: strong.map_or_else(|| Owner::Object(heir.unbind().into()), Owner::Storage),
            bytes: former.bytes,
            device: former.device,
        };
        self.storages.set_buffer(sid, Buffer::Scratch(scratch));
        Ok(true)
    }
}
