//! Storages that change their size, results without a storage of their own, and ops that do what they do not declare.

use pyo3::prelude::*;

use super::{remat_error, State};
use crate::arguments::Walk;
use crate::fastcall::call_one;
use crate::func::Func;
use crate::layout::Guard;
use crate::storages::{Buffer, LiveId};

impl State {
    /// A result without a storage of its own (sparse): its parts become constants, and room is made for them before
    /// the next such op. Returns their bytes.
    pub(super) fn take_parts<'py>(
        &mut self,
        tensor: &Bound<'py, PyAny>,
        strangers: &mut Vec<Bound<'py, PyAny>>,
        shared: &mut Vec<LiveId>,
    ) -> PyResult<u64> {
        let py = tensor.py();
        let mut total = 0u64;
        for storage in self.torch.parts(tensor)? {
            if let Some(id) = self.core.storages.find(&storage) {
                shared.push(id);
                continue;
            }
            total += storage
                .call_method0(pyo3::intern!(py, "nbytes"))?
                .extract::<u64>()?;
            strangers.push(storage);
        }
        Ok(total)
    }

    /// Prepares for a storage's being resized where no op is dispatched.
    pub(super) fn before_resize(
        &mut self,
        storage: &Bound<'_, PyAny>,
        bytes: u64,
    ) -> PyResult<bool> {
        let py = storage.py();
        self.core.current = "resizing a storage".into();
        self.core.drain_deaths(py)?;
        let Some(id) = self.core.storages.find(storage) else {
            return Ok(false);
        };
        self.overwrite(py, "remat.resize", &[id], bytes)?;
        if let Some(live) = self.core.storages.live(id) {
            self.core.layout.set_guard(py, live.imp, Guard::Down);
        }
        Ok(true)
    }

    /// A foreign op may do to storages what it does not declare: sizes are looked at again.
    pub(super) fn check_foreign(
        &mut self,
        py: Python<'_>,
        func: &Func,
        walked: &Walk,
        result: Option<&Py<PyAny>>,
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
        for tensor in self.flatten(py, result.bind(py), 1)?.into_iter().flatten() {
            let Ok(storage) = call_one(&self.torch.untyped_storage, &tensor) else {
                continue;
            };
            let elements: u64 = tensor.call_method0("numel")?.extract()?;
            let Some(id) = self.core.storages.find(&storage) else {
                continue;
            };
            if elements > 0 {
                self.guard_freed(py, id);
            }
        }
        Ok(())
    }

    /// A storage without bytes: access to what is not there raises from now on, where plain torch would crash.
    pub(super) fn guard_freed(&mut self, py: Python<'_>, id: LiveId) {
        if let Some(live) = self.core.storages.live_mut(id).filter(|l| l.bytes == 0) {
            live.freed = true;
            let imp = live.imp;
            self.core.layout.set_guard(py, imp, Guard::Up);
        }
    }

    /// A storage may have been resized: it is then taken in anew, as a constant. Returns by how many bytes
    /// it grew if it was.
    pub(super) fn check_size(&mut self, py: Python<'_>, id: LiveId) -> PyResult<Option<u64>> {
        let Some(live) = self.core.storages.live(id) else {
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
                self.guard_freed(py, id);
            }
            return Ok(None);
        }
        let mut grown = 0;
        if let Some(live) = self.core.storages.forget(id) {
            grown = bytes.saturating_sub(live.bytes);
            self.core.uncount(py, &live)?;
            let sid = self.core.engine.storage(live.tensor);
            self.core.storages.set_buffer(sid, Buffer::Empty);
            self.core.release(py, live.tensor)?;
            let (id, _) = self.core.constant(&object, live.pool)?;
            self.guard_freed(py, id);
        }
        Ok(Some(grown))
    }
}
