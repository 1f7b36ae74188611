//! Storages that change their size, results without a storage of their own, and effects that ops do not declare.

use pyo3::prelude::*;

use super::state::State;
use crate::call::arguments::Walk;
use crate::call::func::Func;
use crate::ffi::errors::remat_error;
use crate::ffi::fastcall::call_one;
use crate::ffi::layout::{Guard, Impl};
use crate::tracking::buffers::Buffer;
use crate::tracking::live::LiveId;

/// The parts of sparse results.
#[derive(Default)]
pub(super) struct Parts<'py> {
    /// Storages that the session does not know yet.
    pub(super) strangers: Vec<Bound<'py, PyAny>>,
    /// Storages that it knows.
    pub(super) shared: Vec<LiveId>,
    /// Bytes of the strangers among them.
    pub(super) bytes: u64,
}

impl State {
    /// Lists the parts of a result without a storage of its own (sparse). They become constants, and the next such op
    /// has room made for them first.
    pub(super) fn list_parts<'py>(
        &self,
        tensor: &Bound<'py, PyAny>,
        parts: &mut Parts<'py>,
    ) -> PyResult<()> {
        let py = tensor.py();
        for storage in self.torch.parts(tensor)? {
            if let Some(id) = self.executor.storages.find(&storage) {
                parts.shared.push(id);
                continue;
            }
            parts.bytes += storage
                .call_method0(pyo3::intern!(py, "nbytes"))?
                .extract::<u64>()?;
            parts.strangers.push(storage);
        }
        Ok(())
    }

    /// Prepares a storage for being resized where no op is dispatched. Returns whether the session knows it.
    pub(super) fn before_resize(
        &mut self,
        storage: &Bound<'_, PyAny>,
        bytes: u64,
    ) -> PyResult<bool> {
        let py = storage.py();
        self.set_current("resizing a storage");
        self.executor.drain_deaths(py)?;
        let Some(id) = self.executor.storages.find(storage) else {
            return Ok(false);
        };
        self.overwrite(py, "remat.resize", &[id], bytes)?;
        let imp = Impl::of(storage)?;
        // SAFETY: `storage` is in scope and owns the storage. The overwrite made it resident, so it has as many bytes
        // as its size says.
        unsafe {
            self.executor
                .internals
                .layout
                .set_guard(py, imp, Guard::Down)
        };
        Ok(true)
    }

    /// Checks sizes again after a foreign op, which may have resized storages without declaring it.
    pub(super) fn check_foreign(
        &mut self,
        py: Python<'_>,
        func: &Func,
        walked: &Walk,
        result: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        for (i, &id) in walked.lives.iter().enumerate() {
            let resized = self.check_size(py, id)?.is_some();
            if resized && result.is_some() && !walked.written.contains(&(i as u32)) {
                let message = format!(
                    "{}: it resized the storage of a tensor that it does not declare to write: \
                     name the argument in mutates_args",
                    func.name
                );
                return Err(remat_error(py, &message));
            }
        }
        let Some(result) = result else { return Ok(()) };
        for tensor in self.flatten(result, 1)?.into_iter().flatten() {
            let Ok(storage) = call_one(&self.torch.untyped_storage, &tensor) else {
                continue;
            };
            let elements: u64 = tensor.call_method0("numel")?.extract()?;
            let Some(id) = self.executor.storages.find(&storage) else {
                continue;
            };
            if elements > 0 {
                self.guard_freed(&storage, id);
            }
        }
        Ok(())
    }

    /// Raises the guard of a storage without bytes, so that access raises where plain torch would crash.
    fn guard_freed(&mut self, storage: &Bound<'_, PyAny>, id: LiveId) {
        let known = Impl::of(storage).ok();
        let live = self.executor.storages.live_mut(id);
        if let Some(live) = live.filter(|live| live.bytes == 0 && Some(live.imp) == known) {
            live.freed = true;
            // SAFETY: `storage` is in scope and owns the storage, whose address the table has. A raised guard asks for
            // no bytes.
            unsafe {
                let layout = self.executor.internals.layout;
                layout.set_guard(storage.py(), live.imp, Guard::Up);
            }
        }
    }

    /// Takes a storage in anew, as a constant, if it was resized. Returns then by how many bytes it grew.
    pub(super) fn check_size(&mut self, py: Python<'_>, id: LiveId) -> PyResult<Option<u64>> {
        let Some(live) = self.executor.storages.live(id) else {
            return Ok(None);
        };
        let Some(object) = live.upgrade(py)? else {
            return Ok(None);
        };
        let bytes: u64 = object
            .call_method0(pyo3::intern!(py, "nbytes"))?
            .extract()?;
        if bytes == live.bytes {
            if live.freed {
                self.guard_freed(&object, id);
            }
            return Ok(None);
        }
        let mut grown = 0;
        if let Some(former) = self.executor.storages.forget(id) {
            grown = bytes.saturating_sub(former.bytes);
            self.executor.uncount(py, &former)?;
            let sid = self.executor.storage_of(former.tensor);
            self.executor.storages.set_buffer(sid, Buffer::Empty);
            self.executor.release(py, former.tensor)?;
            let device = former.device;
            drop(former); // it is watched anew
            let (id, _) = self.executor.constant(&object, device)?;
            self.guard_freed(&object, id);
        }
        Ok(Some(grown))
    }
}
