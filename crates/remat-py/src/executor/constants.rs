//! Constants, which no replay brings back: storages made out of the session's sight, and pinned ones.

use pyo3::prelude::*;
use remat_core::{Bytes, DeviceId, TensorId};
use remat_plan::step::UNRECORDED_PART;

use super::placed::replaying;
use super::state::Executor;
use crate::call::arguments::{Registry, Resolved};
use crate::ffi::caching;
use crate::ffi::counted;
use crate::ffi::errors::budget_error;
use crate::ffi::layout::Impl;
use crate::tracking::devices::PLACED;
use crate::tracking::live::{Contents, LiveId, UNTOLD};
use crate::tracking::outside::Place;

impl Executor {
    /// Makes a live storage resident and pins it.
    pub fn pin(&mut self, py: Python<'_>, id: LiveId) -> PyResult<()> {
        let Some(live) = self.storages.live(id) else {
            return Ok(());
        };
        let takes = (live.bytes, live.device);
        self.despite_garbage(py, takes, |executor| executor.pin_beside_garbage(py, id))
    }

    /// [`pin`](Self::pin) that leaves garbage where it is.
    fn pin_beside_garbage(&mut self, py: Python<'_>, id: LiveId) -> PyResult<()> {
        let Some(live) = self.storages.live(id) else {
            return Ok(());
        };
        let tensor = live.tensor;
        if self.engine.is_pinned(self.storage_of(tensor)) {
            self.engine.note_constant(tensor);
            self.storages.note_made(id, (0, 0));
            return Ok(());
        }
        // A replay finds room beside all that is there.
        self.count_unwatched();
        self.tell_untold();
        replaying(py, self, |executor| {
            let pinned = executor.engine.pin(tensor);
            pinned.map_err(|e| executor.refusal(py, &e))?;
            executor.perform(py)
        })?;
        if let Some(trace) = &mut self.trace {
            trace.pin(tensor);
        }
        self.hold_if_pinned(py, id)?;
        self.collect();
        Ok(())
    }

    /// Pins a live storage, unless the budget has no room for it or the engine has not been told of it: then it is a
    /// constant already. Returns whether it is one now.
    pub fn pin_if_possible(&mut self, py: Python<'_>, id: LiveId) -> PyResult<bool> {
        if self
            .storages
            .live(id)
            .is_none_or(|live| live.tensor == UNTOLD)
        {
            return Ok(true);
        }
        match self.pin_beside_garbage(py, id) {
            Err(e) if e.is_instance(py, &budget_error(py)?) => Ok(false),
            done => done.map(|()| true),
        }
    }

    /// Pins a live storage and forbids moving it, because code out of the session's sight knows its address.
    pub fn pin_in_place(&mut self, py: Python<'_>, id: LiveId) -> PyResult<()> {
        self.pin(py, id)?;
        if let Some(live) = self.storages.live_mut(id) {
            // An op that gives it its first value writes what somebody may read by the address.
            live.blank = false;
            let tensor = live.tensor;
            self.engine.fix(tensor).map_err(|e| self.refusal(py, &e))?;
        }
        Ok(())
    }

    /// Evicts until so many bytes are free.
    pub fn make_room(&mut self, py: Python<'_>, bytes: u64, device: DeviceId) -> PyResult<()> {
        self.sync(py)?;
        let room = self
            .engine
            .constant(Bytes(bytes), device)
            .map_err(|e| self.refusal(py, &e))?;
        self.perform(py)?;
        self.engine
            .release(room)
            .map_err(|e| self.refusal(py, &e))?;
        self.perform(py)?;
        self.collect();
        Ok(())
    }

    /// Registers a storage as a constant, because it was made where the session could not see it.
    pub fn constant(
        &mut self,
        storage: &Bound<'_, PyAny>,
        device: DeviceId,
    ) -> PyResult<(LiveId, TensorId)> {
        self.tell_untold(); // those before it come first
        self.take_over(storage)?;
        let py = storage.py();
        let bytes: u64 = storage.call_method0("nbytes")?.extract()?;
        let (outside, elsewhere) = self.places_outside(storage, bytes, device)?;
        let counted = match outside {
            None => bytes,
            Some(place) => {
                if !self.outside.share(place) {
                    let region = self.count_constant(py, bytes, device)?;
                    self.outside.insert(place, region, device);
                    self.tell_outside(device, bytes as i64);
                }
                0
            }
        };
        let tensor = match self.count_constant(py, counted, device) {
            Ok(tensor) => tensor,
            Err(e) => {
                if let Some(region) = outside.and_then(|place| self.outside.leave(place)) {
                    self.ledger.sub(region.device, region.bytes);
                    self.tell_outside(region.device, -(region.bytes as i64));
                    self.release(py, region.tensor)?;
                }
                return Err(e);
            }
        };
        let id = self.storages.insert(
            storage,
            Impl::of(storage)?,
            Contents {
                tensor,
                sid: self.storage_of(tensor),
                bytes,
                device,
            },
        )?;
        if let Some(place) = outside {
            self.storages.set_outside(id, place);
        }
        if elsewhere {
            let live = self.storages.live_mut(id);
            live.into_iter().for_each(|live| live.elsewhere = true);
            caching::add_elsewhere(bytes);
        }
        if let Some(timeline) = &self.storages.timeline {
            timeline.tell(|recorder| recorder.not_made(id, outside.is_some()));
        }
        Ok((id, tensor))
    }

    /// Tells the timeline and the caching allocator of memory that torch did not allocate: so many bytes more, or
    /// fewer.
    pub(super) fn tell_outside(&self, device: DeviceId, bytes: i64) {
        match bytes {
            0.. => caching::add_elsewhere(bytes as u64),
            _ => caching::sub_elsewhere(bytes.unsigned_abs()),
        }
        if let Some(timeline) = &self.storages.timeline {
            timeline.tell(|recorder| recorder.outside(device, bytes));
        }
    }

    /// The region of a storage's bytes, if torch did not allocate them; and whether torch did, but not by the caching
    /// allocator.
    fn places_outside(
        &self,
        storage: &Bound<'_, PyAny>,
        bytes: u64,
        device: DeviceId,
    ) -> PyResult<(Option<Place>, bool)> {
        if bytes == 0 || self.devices[device.0 as usize].name != "cpu" {
            return Ok((None, false));
        }
        // SAFETY: `storage` is in scope and owns the storage.
        let origin = unsafe {
            let layout = &self.internals.layout;
            layout.origin(storage.py(), Impl::of(storage)?)
        };
        let own = [self.own_deleter, caching::own_deleter()];
        if origin.data != 0 && !own.contains(&origin.deleter) {
            return Ok((Some((origin.data, bytes)), false));
        }
        Ok((None, caching::is_entered() && !caching::holds(origin.data)))
    }

    /// Tells the engine of the storages that it was not told of: they are constants, and counted already. All but calls
    /// that leave no record begin with this.
    #[inline]
    pub fn tell_untold(&mut self) {
        if self.storages.any_untold() {
            self.tell_all_untold();
        }
    }

    /// Counts a storage that an op made whose result is this tensor, if the op is of a planned step and left no record.
    #[inline]
    pub fn note_if_unrecorded(&mut self, id: LiveId, made: TensorId) {
        if self.engine.is_unrecorded(made) {
            self.storages.set_unrecorded(id, true);
            if !self.has_room_unrecorded(0) {
                self.engine.record_rest();
            }
        }
    }

    /// Whether so many bytes more may be there of ops of planned steps that leave no record: no more than planned, as
    /// they cannot be evicted once the program departs from the plan. The planner does not count results that become
    /// constants in any case: a gradient, for example, between the op that makes it and the leaf that takes it. So the
    /// results of one op may be there beside those that it counts.
    pub fn has_room_unrecorded(&self, bytes: u64) -> bool {
        let transient = counted::bytes().saturating_sub(self.unwatched.at_begin);
        let unrecorded = self.storages.unrecorded_bytes() + transient;
        let unrecorded = unrecorded.saturating_add(bytes);
        let uncounted = self.storages.unrecorded_at_once().max(bytes);
        let Some(budget) = self.engine.budget(self.budget_device) else {
            return false;
        };
        let most = budget.0 / UNRECORDED_PART;
        let most = self
            .engine
            .unrecorded_most()
            .map_or(most, |planned| most.min(planned.0));
        unrecorded.saturating_sub(uncounted) <= most
    }

    #[cold]
    fn tell_all_untold(&mut self) {
        let mut at = 0;
        while let Some(id) = self.storages.next_untold(&mut at) {
            let Some(live) = self.storages.live(id) else {
                continue;
            };
            let ((op, output), bytes, device) = (live.made, Bytes(live.bytes), live.device);
            match self.engine.constant_of(op, output, bytes, device) {
                Ok(tensor) => self.storages.note_told(id, tensor, self.storage_of(tensor)),
                // Ids have run out: the storage is taken in anew when an op reads it, or the run ends for that reason.
                Err(_) => {
                    self.storages.forget(id);
                    self.ledger.sub(device, bytes.0);
                }
            }
        }
    }

    /// Counts bytes that cannot be recomputed: in the account, the engine and the trace.
    fn count_constant(
        &mut self,
        py: Python<'_>,
        bytes: u64,
        device: DeviceId,
    ) -> PyResult<TensorId> {
        self.ledger.add(device, bytes);
        // Bytes in an arena have their block already, and need no room.
        let made = self.despite_garbage(py, (bytes, device), |executor| {
            let engine = &mut executor.engine;
            let made = match &mut executor.arena {
                Some(arena) if device == PLACED => {
                    arena.stale = true;
                    engine.constant_elsewhere(Bytes(bytes), device)
                }
                _ => engine.constant(Bytes(bytes), device),
            };
            made.map_err(|e| executor.refusal(py, &e))
        });
        // Where a step fails, the engine takes the constant back.
        let tensor = made
            .and_then(|tensor| self.perform(py).map(|()| tensor))
            .inspect_err(|_| self.ledger.sub(device, bytes))?;
        if let Some(trace) = &mut self.trace {
            trace.constant(tensor, bytes, device);
        }
        Ok(tensor)
    }
}

impl Executor {
    /// Whether a storage that the session does not know promises bytes without having them.
    pub fn is_hollow(&self, storage: &Bound<'_, PyAny>, bytes: u64) -> PyResult<bool> {
        // SAFETY: `storage` is in scope and owns the storage.
        let origin = unsafe {
            let layout = &self.internals.layout;
            layout.origin(storage.py(), Impl::of(storage)?)
        };
        Ok(bytes > 0 && origin.data == 0)
    }
}

impl Registry for Executor {
    fn resolve(&mut self, storage: &Bound<'_, PyAny>) -> PyResult<Resolved> {
        if let Some(id) = self.storages.find(storage) {
            self.storages.note_read(id);
            if let Some(live) = self.storages.live(id) {
                return Ok(Resolved::Live(id, live.tensor));
            }
        }
        let Some(device) = self.device_of(storage)? else {
            return Ok(Resolved::Elsewhere);
        };
        let bytes: u64 = storage.call_method0("nbytes")?.extract()?;
        if self.is_hollow(storage, bytes)? {
            return Ok(Resolved::Hollow);
        }
        let (id, tensor) = self.constant(storage, device)?;
        Ok(Resolved::Live(id, tensor))
    }
}
