//! Performing the engine's steps, and evicting.

use pyo3::prelude::*;
use remat_core::{DeviceId, Step, StorageId};

use super::state::Executor;
use crate::ffi::gil::Attach;
use crate::ffi::layout::{Guard, Impl};
use crate::tracking::buffers::Buffer;
use crate::tracking::live::LiveId;
use crate::tracking::owner::Owner;

impl Executor {
    /// Performs the engine's latest steps. If one fails, the engine is told how far they got.
    #[inline]
    pub fn perform(&mut self, gil: impl Attach) -> PyResult<()> {
        if self.engine.steps().is_empty() {
            return Ok(());
        }
        if self.forgets_only() {
            self.forget_bytes();
            return Ok(());
        }
        gil.attach(|py| self.perform_steps(py))
    }

    /// Whether all steps evict what the program does not hold any more, as when a storage died: that needs no Python.
    fn forgets_only(&self) -> bool {
        let gone = |sid: &StorageId| !matches!(self.storages.buffer(*sid), Buffer::Live(_));
        let mut steps = self.engine.steps().iter();
        self.accelerators.here.is_empty()
            && self.arena.is_none()
            && steps.all(|step| matches!(step, Step::Evict(sid) if gone(sid)))
    }

    /// Performs steps that [`forget`](Self::forgets_only) bytes, as all do that follow where a reference was released.
    pub(super) fn forget_bytes(&mut self) {
        for at in 0..self.engine.steps().len() {
            if let Step::Evict(sid) = self.engine.steps()[at] {
                self.forget_scratch(sid);
            }
        }
    }

    /// Lets go of the bytes of a storage that the program does not hold, if there are any.
    fn forget_scratch(&mut self, sid: StorageId) {
        if let Buffer::Scratch(scratch) = self.storages.buffer(sid) {
            self.ledger.sub(scratch.device, scratch.bytes);
            self.storages.set_buffer(sid, Buffer::Empty);
        }
    }

    fn perform_steps(&mut self, py: Python<'_>) -> PyResult<()> {
        let mut steps = std::mem::take(&mut self.steps);
        steps.clear();
        steps.extend_from_slice(self.engine.steps());
        self.placements.clear();
        self.placements.extend_from_slice(self.engine.placements());
        let mut kept = std::mem::take(&mut self.kept);
        let ready = self.order_streams(py);
        let mut outcome = ready.and_then(|()| self.keep_for(py, &steps, &mut kept));
        if outcome.is_err() {
            self.engine.abort(0);
            steps.clear();
        }
        self.performing = true;
        for (done, step) in steps.iter().enumerate() {
            let result = match *step {
                Step::Evict(sid) => self.evict(py, sid),
                Step::Recompute { op, mutation } => self.replay(py, op, mutation, done),
                Step::Move { storage, address } => self.move_bytes(py, storage, address),
            };
            if let Err(e) = result {
                self.engine.abort(done);
                if let Step::Recompute { op, .. } = *step {
                    self.note_replay_failed(py, op, &e);
                }
                outcome = Err(e);
                break;
            }
        }
        self.performing = false;
        // What died meanwhile goes now. The engine hears of it before it plans anything else.
        kept.clear();
        self.kept = kept;
        self.placements.clear();
        let replayed = steps
            .iter()
            .any(|step| matches!(step, Step::Recompute { .. }));
        self.steps = steps;
        if replayed {
            outcome = outcome.and(self.order_streams(py));
        }
        outcome
    }

    /// Keeps the program's storages alive that steps read or bring back. Python may run while steps are performed, and
    /// collect garbage that owns a storage which a later step reads.
    fn keep_for(&self, py: Python<'_>, steps: &[Step], kept: &mut Vec<Owner>) -> PyResult<()> {
        for step in steps {
            let Step::Recompute { op, .. } = *step else {
                continue;
            };
            let tensors = self.engine.inputs(op).iter();
            for &tensor in tensors.chain(self.engine.outputs(op)) {
                let Buffer::Live(id) = *self.storages.buffer(self.storage_of(tensor)) else {
                    continue;
                };
                if let Some(live) = self.storages.live(id) {
                    kept.extend(live.keep(py)?);
                }
            }
        }
        Ok(())
    }

    fn evict(&mut self, py: Python<'_>, sid: StorageId) -> PyResult<()> {
        match self.storages.buffer(sid) {
            Buffer::Empty | Buffer::Scratch(_) => {
                self.forget_scratch(sid);
                Ok(())
            }
            Buffer::Live(id) => self.evict_live(py, *id),
        }
    }

    /// Takes a live storage's bytes away, and raises its guard.
    fn evict_live(&mut self, py: Python<'_>, id: LiveId) -> PyResult<()> {
        let Some(live) = self.storages.live(id).filter(|live| live.present) else {
            return Ok(());
        };
        let (imp, device, bytes) = (live.imp, live.device, live.bytes);
        let Some(kept) = live.keep(py)? else {
            // It died since deaths were last seen to, as in another thread, and took its bytes along or left them.
            if live.remains().is_some() {
                // SAFETY: the table's weak reference keeps the memory of the storage. No strong one leads to it, and
                // none will, so nobody reads or writes its bytes. Torch lets go of them only with the weak reference.
                unsafe { self.internals.layout.free(py, imp) };
            }
            self.note_evicted(id, device, bytes);
            return Ok(());
        };
        if self.devices[device.0 as usize].name == "cpu" {
            // SAFETY: `kept` is in scope and owns the storage. The engine evicts no storage that a running op uses, so
            // no op reads or writes it. The guard goes up while the GIL is held, before anybody can reach for the bytes
            // that the size still promises.
            unsafe {
                self.internals.layout.set_guard(py, imp, Guard::Up);
                self.internals.layout.free(py, imp);
            }
        } else {
            // Accelerators keep accounts of which storage has which bytes: this one gets those of an empty storage.
            let empty = self.empty_storage(py, device)?;
            let no_bytes = Impl::of(&empty)?;
            // SAFETY: as above; `empty` is in scope and owns the other storage.
            unsafe {
                self.internals.layout.swap(py, imp, no_bytes);
                self.internals.layout.set_guard(py, imp, Guard::Up);
            }
        }
        drop(kept);
        self.note_evicted(id, device, bytes);
        Ok(())
    }

    /// A live storage has lost its bytes.
    fn note_evicted(&mut self, id: LiveId, device: DeviceId, bytes: u64) {
        if let Some(live) = self.storages.live_mut(id) {
            live.present = false;
        }
        if let Some(timeline) = &self.storages.timeline {
            timeline.tell(|recorder| recorder.evicted(id));
        }
        self.ledger.sub(device, bytes);
    }

    fn empty_storage<'py>(&self, py: Python<'py>, device: DeviceId) -> PyResult<Bound<'py, PyAny>> {
        let device = &self.devices[device.0 as usize].device;
        self.internals.empty_storage.bind(py).call1((device,))
    }
}
