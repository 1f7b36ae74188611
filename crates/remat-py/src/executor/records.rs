//! The table of recorded calls: keeping and forgetting them, the storages that they keep alive, the cut of long chains.

use pyo3::prelude::*;
use remat_core::{OpId, TensorId};

use super::state::Executor;
use crate::call::record::{Hold, Record};
use crate::ffi::gil::Attach;
use crate::tracking::buffers::Buffer;
use crate::tracking::lineage::LONG;
use crate::tracking::live::LiveId;

impl Executor {
    /// Forgets records of ops that the engine will not replay any more.
    #[inline]
    pub fn collect(&mut self) {
        if !self.engine.has_collected() {
            return;
        }
        let collected = self.engine.collected();
        self.dead_ops.clear();
        self.dead_ops.extend_from_slice(collected.ops);
        self.dead_storages.clear();
        self.dead_storages.extend_from_slice(collected.storages);
        for i in 0..self.dead_storages.len() {
            let sid = self.dead_storages[i];
            if let Buffer::Scratch(_) = self.storages.buffer(sid) {
                self.storages.set_buffer(sid, Buffer::Empty);
            }
        }
        for i in 0..self.dead_ops.len() {
            let op = self.dead_ops[i];
            if self.running == Some(op) {
                self.running = None;
            }
            if let Some(record) = self.records.get_mut(op.index()).and_then(Option::take) {
                self.live_records -= 1;
                for hold in &record.holds {
                    let held = self.storages.live_mut(hold.id);
                    if let Some(live) = held.filter(|live| live.serial == hold.serial) {
                        live.readers -= 1;
                        if live.readers == 0 {
                            self.storages.unhold(hold.id);
                        }
                    }
                }
            }
        }
    }

    /// Keeps the record of an op for its replays. Constants that it reads stay alive as long as the record, and so do
    /// storages that become constants later.
    pub fn keep(
        &mut self,
        gil: impl Attach,
        op: OpId,
        lives: &[LiveId],
        record: impl FnOnce() -> Record,
    ) -> PyResult<()> {
        self.collect();
        if self.running != Some(op) {
            return Ok(()); // forgotten as it finished: its outputs are constants, or nobody holds them
        }
        if self.unbounded {
            return Ok(()); // nothing is ever evicted, and a dropped constant must not live longer than without Remat
        }
        if self.records.len() <= op.index() {
            self.records.resize_with(op.index() + 1, || None);
        }
        let record = self.records[op.index()].insert(record());
        self.live_records += 1;
        for &id in lives {
            if let Some(live) = self.storages.live_mut(id) {
                live.readers += 1;
                let serial = live.serial;
                record.holds.push(Hold { id, serial });
            }
        }
        lives
            .iter()
            .try_for_each(|&id| self.hold_if_pinned(gil, id))
    }

    /// Keeps a constant alive while recorded ops read it: once dropped, nothing could bring it back.
    pub(super) fn hold_if_pinned(&mut self, gil: impl Attach, id: LiveId) -> PyResult<()> {
        let Some(live) = self.storages.live(id) else {
            return Ok(());
        };
        let wanted = live.readers > 0 && live.hold.is_none() && live.present;
        if !wanted || !self.engine.is_pinned(self.storage_of(live.tensor)) {
            return Ok(());
        }
        if let Some(owner) = live.keep(gil)? {
            self.storages.hold(id, owner);
        }
        Ok(())
    }

    /// Notes the storages that the engine's latest call pinned. As an op overwrites a constant, the engine pins the
    /// tensors that were computed from it, which are constants from then on.
    pub fn note_pinned(&mut self) {
        self.pinned.extend_from_slice(self.engine.newly_pinned());
    }

    /// Keeps constants alive that were noted and that recorded ops read.
    pub fn hold_newly_pinned(&mut self, gil: impl Attach) -> PyResult<()> {
        while let Some(sid) = self.pinned.pop() {
            if let Buffer::Live(id) = *self.storages.buffer(sid) {
                self.hold_if_pinned(gil, id)?;
            }
        }
        Ok(())
    }

    /// Length of the chain of ops behind the result of an op that reads these tensors.
    pub fn chain(&self, inputs: &[TensorId]) -> u32 {
        let lengths = inputs.iter().map(|&input| {
            let sid = self.storage_of(input);
            if self.engine.is_pinned(sid) {
                0
            } else {
                self.lineage.of(sid)
            }
        });
        lengths.max().unwrap_or(0).saturating_add(1)
    }

    /// Notes the length of the chain of ops behind an op's outputs.
    pub fn note_chain(&mut self, made: &[TensorId], length: u32) {
        for &tensor in made {
            self.lineage.set(self.storage_of(tensor), length);
        }
    }

    /// Pins the tensors that the program carries on, before an op, if chains have become long and the program holds as
    /// little as at its low points. Returns whether it did.
    pub fn cut_chains(&mut self, gil: impl Attach, length: u32) -> PyResult<bool> {
        if !self
            .lineage
            .is_time(length, self.live_records, self.storages.held())
        {
            return Ok(false);
        }
        gil.attach(|py| self.pin_carried(py))?;
        Ok(true)
    }

    fn pin_carried(&mut self, py: Python<'_>) -> PyResult<()> {
        let carried: Vec<LiveId> = self
            .storages
            .all()
            .filter(|(_, live)| {
                let sid = self.storage_of(live.tensor);
                self.lineage.of(sid) >= LONG / 2 && !self.engine.is_pinned(sid)
            })
            .map(|(id, _)| id)
            .collect();
        for id in carried {
            self.pin_if_possible(py, id)?;
        }
        Ok(())
    }
}
