//! The bytes that ops took while nobody watched them: one constant, as large as they are now.

use pyo3::prelude::*;
use remat_core::{Bytes, DeviceId};

use super::state::Executor;
use crate::ffi::counted;
use crate::ffi::gil::Attach;
use crate::ffi::layout::Impl;
use crate::tracking::live::LiveId;

impl Executor {
    /// Tells the engine and the ledger how many bytes are counted now. Whoever enters the session does so, and has
    /// ops watched from there on: the bytes that the session counts may change, and records be made.
    #[inline]
    pub fn count_unwatched(&mut self) {
        counted::end();
        if counted::bytes() != self.unwatched.bytes || counted::has_most() {
            self.count_unwatched_anew();
        }
    }

    #[cold]
    fn count_unwatched_anew(&mut self) {
        let main_memory = self.devices.iter().position(|known| known.name == "cpu");
        // Such runs watch all ops. What another run left behind is none of theirs.
        let watches =
            self.trace.is_some() || self.storages.timeline.is_some() || self.arena.is_some();
        let (Some(device), false) = (main_memory, watches) else {
            return;
        };
        let device = DeviceId(device as u8);
        let (before, now) = (self.unwatched.bytes, counted::bytes());
        self.ledger.change(device, before, now);
        self.ledger.note_peak(device, counted::take_most());
        self.unwatched.bytes = now;
        let bytes = Bytes(now);
        // The engine gave the constant out, and no op read it.
        match self.unwatched.constant {
            Some(constant) if now > 0 => {
                let _ = self.engine.resize_elsewhere(constant, bytes);
            }
            Some(constant) => {
                self.unwatched.constant = None;
                let _ = self.engine.release(constant);
                // Bytes may go with it that were there for tensors alone which have been pinned meanwhile.
                self.forget_bytes();
                self.collect();
            }
            None if now > 0 => {
                let constant = self.engine.constant_elsewhere(bytes, device);
                self.unwatched.constant = constant.ok(); // ids have run out: the run ends for that reason
            }
            None => {}
        }
    }

    /// Makes constants of all storages, of which none is evicted.
    pub fn make_all_constant(&mut self, gil: impl Attach) -> PyResult<()> {
        self.tell_untold();
        let lives: Vec<LiveId> = self.storages.all().map(|(id, _)| id).collect();
        for id in lives {
            let Some(live) = self.storages.live(id) else {
                continue;
            };
            let pinned = self.engine.pin(live.tensor);
            pinned.map_err(|e| self.refusal(gil, &e))?;
            self.perform(gil)?;
            self.hold_if_pinned(gil, id)?;
        }
        self.collect();
        Ok(())
    }

    /// An op of a planned step runs unwatched, beside so many [`used_watched`](Self::used_watched) bytes. It needs so
    /// many more at most.
    pub fn note_transient(&mut self, others: u64, more: u64) {
        self.unwatched.transient += 1;
        let most = others + counted::bytes() + more;
        self.ledger.note_peak(self.budget_device, most);
        counted::count_beside(others);
    }

    /// Bytes in use but for those that were taken unwatched: those that the engine knows or will be told of, or those
    /// of the ledger if they are more.
    pub fn used_watched(&self) -> u64 {
        let told = self.engine.memory(self.budget_device).0;
        let told = told.saturating_add(self.storages.untold_bytes());
        let used = told.max(self.ledger.used(self.budget_device));
        used.saturating_sub(self.unwatched.bytes)
    }

    /// Bytes that the session counts by itself: all but those that were taken unwatched.
    pub fn counted_by_itself(&self) -> u64 {
        let used = self.ledger.used(self.budget_device);
        used.saturating_sub(self.unwatched.bytes)
    }

    /// Counts a storage's bytes no more as taken unwatched: they are about to be those of a storage that is known.
    pub(super) fn take_over(&mut self, storage: &Bound<'_, PyAny>) -> PyResult<()> {
        // SAFETY: `storage` is in scope and owns the storage. Only ops of the program that write to a tensor and resize
        // it change the place of its bytes, and none runs beside one that reads it.
        let was_counted = unsafe {
            let layout = &self.internals.layout;
            layout.count_no_more(storage.py(), Impl::of(storage)?)
        };
        self.count_unwatched();
        if was_counted {
            self.engine.note_asked();
        }
        Ok(())
    }
}
