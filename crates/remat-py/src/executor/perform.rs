//! Performing what the engine says: evictions and replays.

use std::time::Instant;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use remat_core::{Mutation, OpId, PoolId, Step, StorageId};

use super::CoreState;
use crate::layout::{Guard, Impl};
use crate::record::{Record, BLANK};
use crate::storages::Buffer;

impl CoreState {
    /// Performs the engine's latest steps. If one fails, the engine is told how far they got.
    pub fn perform(&mut self, py: Python<'_>) -> PyResult<()> {
        if self.engine.steps().is_empty() {
            return Ok(());
        }
        let mut steps = std::mem::take(&mut self.steps);
        steps.clear();
        steps.extend_from_slice(self.engine.steps());
        self.placements.clear();
        self.placements.extend_from_slice(self.engine.placements());
        self.performing = true;
        let mut outcome = Ok(());
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
        self.placements.clear();
        self.steps = steps;
        outcome
    }

    /// A replay, with its outputs where they were planned.
    fn replay(
        &mut self,
        py: Python<'_>,
        op: OpId,
        mutation: Mutation,
        step: usize,
    ) -> PyResult<()> {
        self.expect(step);
        // A value that is written over and then given up halfway would be lost.
        let consumes = mutation == Mutation::Consume && self.writes(op);
        self.spill(consumes);
        let done = self.recompute(py, op, mutation);
        self.spill(false);
        self.expect_no_more();
        self.check_places(py, op, step);
        done
    }

    fn writes(&self, op: OpId) -> bool {
        let record = self.records.get(op.index()).and_then(Option::as_ref);
        record.is_some_and(|record| !record.written.is_empty())
    }

    fn empty_storage<'py>(&self, py: Python<'py>, pool: PoolId) -> PyResult<Bound<'py, PyAny>> {
        self.seam
            .empty_storage
            .bind(py)
            .call1((&self.pools[pool.0 as usize].device,))
    }

    fn evict(&mut self, py: Python<'_>, sid: StorageId) -> PyResult<()> {
        match self.storages.buffer(sid) {
            Buffer::Empty => {}
            Buffer::Scratch(storage) => {
                let bytes: u64 = storage.bind(py).call_method0("nbytes")?.extract()?;
                let pool = self.scratch_pool(py, sid)?;
                self.ledger.sub(pool, bytes);
                self.storages.set_buffer(sid, Buffer::Empty);
            }
            Buffer::Live(id) => {
                let id = *id;
                let Some(live) = self.storages.live(id) else {
                    return Ok(());
                };
                if !live.present {
                    return Ok(());
                }
                let (imp, pool, bytes) = (live.imp, live.pool, live.bytes);
                let Some(object) = live.upgrade(py)? else {
                    return Ok(());
                };
                let empty = self.empty_storage(py, pool)?;
                self.layout.swap(py, imp, Impl::of(&empty)?);
                self.layout.set_guard(py, imp, Guard::Up);
                drop((empty, object));
                if let Some(live) = self.storages.live_mut(id) {
                    live.present = false;
                }
                self.ledger.sub(pool, bytes);
            }
        }
        Ok(())
    }

    fn scratch_pool(&mut self, py: Python<'_>, sid: StorageId) -> PyResult<PoolId> {
        let Buffer::Scratch(storage) = self.storages.buffer(sid) else {
            return Ok(PoolId(0));
        };
        let storage = storage.bind(py).clone();
        match self.device_of(&storage)? {
            Some(pool) => Ok(pool),
            None => Ok(PoolId(0)),
        }
    }

    fn recompute(&mut self, py: Python<'_>, op: OpId, mutation: Mutation) -> PyResult<()> {
        let started = Instant::now();
        let record = self
            .records
            .get_mut(op.index())
            .and_then(Option::take)
            .ok_or_else(|| {
                PyRuntimeError::new_err(format!("remat: op {} has no record to replay", op.0))
            })?;
        let outcome = self.recompute_record(py, op, &record, mutation);
        self.records[op.index()] = Some(record);
        self.replay_ns += started.elapsed().as_nanos() as u64;
        outcome
    }

    fn recompute_record(
        &mut self,
        py: Python<'_>,
        op: OpId,
        record: &Record,
        mutation: Mutation,
    ) -> PyResult<()> {
        let inputs: Vec<StorageId> = self
            .engine
            .inputs(op)
            .iter()
            .map(|&t| self.engine.storage(t))
            .collect();
        let mut objects = Vec::with_capacity(inputs.len());
        for (i, &sid) in inputs.iter().enumerate() {
            let object = self.storages.object(py, sid)?.ok_or_else(|| {
                PyRuntimeError::new_err(format!(
                    "remat: input {i} of a replay is not in memory (storage {})",
                    sid.0
                ))
            })?;
            let copied = mutation == Mutation::Copy && record.written.contains(&(i as u32));
            objects.push(if copied {
                object.call_method0("clone")?
            } else {
                object
            });
        }
        let blank = match record.blank {
            Some((bytes, pool)) => {
                let device = &self.pools[pool.0 as usize].device;
                Some(self.seam.blank_storage.bind(py).call1((device, bytes))?)
            }
            None => None,
        };
        let view = self.seam.view.bind(py);
        let mut tensors = Vec::with_capacity(record.views.len());
        for v in &record.views {
            let object = match (&blank, v.input) {
                (Some(blank), BLANK) => blank,
                (_, input) => &objects[input as usize],
            };
            tensors.push(view.call1((
                object, &v.dtype, &v.offset, &v.shape, &v.stride, v.conj, v.neg,
            ))?);
        }
        let func = self
            .funcs
            .get(&record.func)
            .ok_or_else(|| PyRuntimeError::new_err("remat: a replayed op was never described"))?;
        let args = record.build_args(py, &tensors)?;
        let kwargs = PyDict::new(py);
        for (name, value) in &record.kwargs {
            kwargs.set_item(name, value.build(py, &tensors)?)?;
        }
        let grad_before = self.set_grad_mode(py, record.grad)?;
        let result = match &record.rng {
            Some(state) => self
                .seam
                .replay_random
                .bind(py)
                .call1((&func.call, &args, &kwargs, state)),
            None => func.call.bind(py).call(&args, Some(&kwargs)),
        };
        if let Some(before) = grad_before {
            self.set_grad_mode(py, before)?;
        }
        let result = result?;
        drop(tensors);
        let outputs: Vec<StorageId> = self
            .engine
            .outputs(op)
            .iter()
            .map(|&t| self.engine.storage(t))
            .collect();
        for (k, &input) in record.written.iter().enumerate() {
            let Some(&target) = outputs.get(k) else { break };
            if mutation == Mutation::Consume {
                // The bytes now belong to the new version: take them out of the old one's buffer.
                let object = objects[input as usize].clone();
                self.storages
                    .set_buffer(inputs[input as usize], Buffer::Empty);
                self.install(py, target, object, Moved::Bytes)?;
            } else {
                self.install(py, target, objects[input as usize].clone(), Moved::New)?;
            }
        }
        if record.results.iter().any(Option::is_some) {
            let flat = self.seam.flatten.bind(py).call1((&result,))?;
            for (i, slot) in record.results.iter().enumerate() {
                let Some(k) = slot else { continue };
                let Some(&target) = outputs.get(*k as usize) else {
                    continue;
                };
                let tensor = flat.get_item(i)?;
                if tensor.is_none() {
                    return Err(PyRuntimeError::new_err(
                        "remat: a replay returned less than the first run",
                    ));
                }
                let storage = self.untyped_storage.bind(py).call1((&tensor,))?;
                self.install(py, target, storage, Moved::New)?;
            }
        }
        self.ledger.spike(record.workspace_pool, record.workspace);
        Ok(())
    }

    fn set_grad_mode(&self, py: Python<'_>, on: bool) -> PyResult<Option<bool>> {
        // `set_grad` returns the mode before, or None when nothing had to change.
        self.set_grad.bind(py).call1((on,))?.extract()
    }

    /// Gives the bytes of `source` to an engine storage, unless it has its own already.
    fn install(
        &mut self,
        py: Python<'_>,
        sid: StorageId,
        source: Bound<'_, PyAny>,
        moved: Moved,
    ) -> PyResult<()> {
        let bytes: u64 = source.call_method0("nbytes")?.extract()?;
        match self.storages.buffer(sid) {
            Buffer::Scratch(_) => return Ok(()),
            Buffer::Live(id) => {
                let id = *id;
                let Some(live) = self.storages.live(id) else {
                    return Ok(());
                };
                if live.present {
                    return Ok(());
                }
                if live.bytes != bytes {
                    return Err(PyRuntimeError::new_err(format!(
                        "remat: a replay made {bytes} bytes where the first run made {}",
                        live.bytes
                    )));
                }
                let (imp, pool) = (live.imp, live.pool);
                let Some(_object) = live.upgrade(py)? else {
                    return Ok(());
                };
                self.layout.set_guard(py, imp, Guard::Down);
                self.layout.swap(py, imp, Impl::of(&source)?);
                if let Some(live) = self.storages.live_mut(id) {
                    live.present = true;
                }
                if moved == Moved::New {
                    self.ledger.add(pool, bytes);
                }
            }
            Buffer::Empty => {
                if moved == Moved::New {
                    if let Some(pool) = self.device_of(&source)? {
                        self.ledger.add(pool, bytes);
                    }
                }
                self.storages
                    .set_buffer(sid, Buffer::Scratch(source.unbind()));
            }
        }
        Ok(())
    }
}

/// Whether installed bytes are new to the ledger.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moved {
    /// Counted already, under another storage.
    Bytes,
    /// Just made.
    New,
}
