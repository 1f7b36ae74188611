//! Running a recorded op once more, and giving its results to the storages that need them. This is the way through
//! Python, which every op can take; [`native`](super::native) is the way around it.

use std::time::Instant;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use remat_core::{Bytes, DeviceId, Mutation, OpId, StorageId, TensorId};

use super::state::Executor;
use crate::call::record::{GradMode, Record};
use crate::call::view::BLANK;
use crate::ffi::arena::Fallback;
use crate::ffi::layout::Guard;
use crate::ffi::watch::StorageObject;
use crate::timeline::Recorder;
use crate::tracking::buffers::{Buffer, Scratch};
use crate::tracking::live::LiveId;
use crate::tracking::owner::Owner;

/// Whether installed bytes are new to the ledger.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Moved {
    /// Counted already, under another storage.
    Bytes,
    /// Just made.
    New,
}

/// A storage with the bytes that a replay made.
pub(super) struct Source {
    pub(super) owner: Owner,
    pub(super) bytes: u64,
    /// Its device, where that is known without asking.
    pub(super) device: Option<DeviceId>,
}

impl Source {
    fn of(object: Bound<'_, PyAny>) -> PyResult<Source> {
        Ok(Source {
            bytes: object.call_method0("nbytes")?.extract()?,
            owner: Owner::Object(object.unbind().into()),
            device: None,
        })
    }
}

/// The inputs of a replay.
struct Inputs<'py> {
    /// The engine's storages.
    sids: Vec<StorageId>,
    /// Python storages with their bytes. A copy stands for an input that the replay must not write.
    objects: Vec<StorageObject<'py>>,
}

impl Executor {
    /// Replays an op, with its outputs at the places that were planned for this step.
    pub(super) fn replay(
        &mut self,
        py: Python<'_>,
        op: OpId,
        mutation: Mutation,
        step: usize,
    ) -> PyResult<()> {
        let record = self.records.get(op.index()).and_then(Option::as_ref);
        let placed = record.filter(|_| self.arena.is_some());
        let call = placed.map_or(0, |record| record.form.kind());
        self.expect(op, call, step);
        // A value that is written over and then given up halfway would be lost.
        if mutation == Mutation::Consume && self.writes(op) {
            self.set_fallback(Fallback::System);
        }
        let done = self.replay_timed(py, op, mutation);
        self.set_fallback(Fallback::Nobody);
        self.expect_no_more();
        self.check_places(py, op, call, step);
        done
    }

    fn writes(&self, op: OpId) -> bool {
        let record = self.records.get(op.index()).and_then(Option::as_ref);
        record.is_some_and(|record| !record.form.written.is_empty())
    }

    fn replay_timed(&mut self, py: Python<'_>, op: OpId, mutation: Mutation) -> PyResult<()> {
        let started = Instant::now();
        let record = self
            .records
            .get_mut(op.index())
            .and_then(Option::take)
            .ok_or_else(|| {
                PyRuntimeError::new_err(format!("remat: op {} has no record to replay", op.0))
            })?;
        if let Some(timeline) = &self.storages.timeline {
            timeline.tell(|recorder| recorder.replaying(op, record.workspace));
        }
        let outcome = self.replay_record(py, op, &record, mutation);
        if let Some(timeline) = &self.storages.timeline {
            timeline.tell(Recorder::replayed);
        }
        self.records[op.index()] = Some(record);
        self.replay_ns += started.elapsed().as_nanos() as u64;
        outcome
    }

    fn replay_record(
        &mut self,
        py: Python<'_>,
        op: OpId,
        record: &Record,
        mutation: Mutation,
    ) -> PyResult<()> {
        let allocates = mutation == Mutation::Copy || record.form.written.is_empty();
        if self.accelerators.checking && allocates {
            let made = self.storages_of(self.engine.outputs(op));
            let made: u64 = made.iter().map(|&sid| self.engine.bytes(sid).0).sum();
            let needed = Bytes(made + record.workspace);
            self.check_blocks(py, needed, record.workspace_device)?;
        }
        if self.replay_natively(py, op, record, mutation)? {
            return Ok(());
        }
        let inputs = self.replay_inputs(py, op, record, mutation)?;
        let result = self.call_recorded(py, record, &inputs)?;
        let outputs = self.storages_of(self.engine.outputs(op));
        self.install_written(py, record, &inputs, &outputs, mutation)?;
        self.install_returned(py, record, &result, &outputs)?;
        self.ledger.spike(record.workspace_device, record.workspace);
        Ok(())
    }

    pub(super) fn storages_of(&self, tensors: &[TensorId]) -> Vec<StorageId> {
        tensors.iter().map(|&t| self.storage_of(t)).collect()
    }

    fn replay_inputs<'py>(
        &self,
        py: Python<'py>,
        op: OpId,
        record: &Record,
        mutation: Mutation,
    ) -> PyResult<Inputs<'py>> {
        let sids = self.storages_of(self.engine.inputs(op));
        let mut objects = Vec::with_capacity(sids.len());
        for (i, &sid) in sids.iter().enumerate() {
            let object = self.storages.object(py, sid)?.ok_or_else(|| {
                PyRuntimeError::new_err(format!(
                    "remat: input {i} of a replay is not in memory (storage {})",
                    sid.0
                ))
            })?;
            let copied = mutation == Mutation::Copy && record.form.written.contains(&(i as u32));
            objects.push(if copied {
                StorageObject::of(object.call_method0("clone")?, None)
            } else {
                object
            });
        }
        Ok(Inputs { sids, objects })
    }

    /// The tensors of a recorded call, as views of its inputs.
    fn views<'py>(
        &self,
        py: Python<'py>,
        record: &Record,
        inputs: &Inputs<'py>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let blank = match record.blank {
            Some((bytes, device)) => {
                let device = &self.devices[device.0 as usize].device;
                Some(
                    self.internals
                        .blank_storage
                        .bind(py)
                        .call1((device, bytes))?,
                )
            }
            None => None,
        };
        let view = self.internals.view.bind(py);
        let mut tensors = Vec::with_capacity(record.form.views.len());
        for (v, offset) in record.form.views.iter().zip(&record.offsets) {
            let object = match (&blank, v.input) {
                (Some(blank), BLANK) => blank,
                (_, input) => &*inputs.objects[input as usize],
            };
            tensors.push(match &v.form {
                Some(form) => form.bind(py).call1((object,))?,
                None => {
                    let sizes = PyTuple::new(py, &v.geometry.sizes)?;
                    let strides = PyTuple::new(py, &v.geometry.strides)?;
                    view.call1((object, &*v.dtype, offset, sizes, strides, v.conj, v.neg))?
                }
            });
        }
        Ok(tensors)
    }

    /// Calls a recorded op in the grad mode, under the settings and with the random numbers of its first run.
    fn call_recorded<'py>(
        &mut self,
        py: Python<'py>,
        record: &Record,
        inputs: &Inputs<'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let tensors = self.views(py, record, inputs)?;
        let func = self
            .funcs
            .get(&record.form.func)
            .ok_or_else(|| PyRuntimeError::new_err("remat: a replayed op was never described"))?;
        let args = record.form.build_args(py, &tensors, &record.numbers)?;
        let kwargs = record.form.build_kwargs(py, &tensors, &record.numbers)?;
        let grad_before = self.set_grad_mode(py, record.context.grad)?;
        let random = self.internals.replay_random.bind(py);
        let state = record.context.state;
        let result = self
            .global_state
            .under(py, state, || match &record.context.rng {
                Some(rng) => {
                    let states = rng.listed(py, &self.internals.default_states)?;
                    random.call1((&func.call, &args, &kwargs, states))
                }
                None => func.call.bind(py).call(&args, Some(&kwargs)),
            });
        if let Some(before) = grad_before {
            self.set_grad_mode(py, before)?;
        }
        result
    }

    /// Sets the grad mode; returns the mode before, or `None` when nothing had to change.
    fn set_grad_mode(&self, py: Python<'_>, mode: GradMode) -> PyResult<Option<GradMode>> {
        let set = self.internals.set_grad_mode.bind(py);
        let before: Option<bool> = set.call1((mode == GradMode::On,))?.extract()?;
        Ok(before.map(GradMode::of))
    }

    /// Gives the inputs that a replay wrote to the storages of the new versions.
    fn install_written(
        &mut self,
        py: Python<'_>,
        record: &Record,
        inputs: &Inputs<'_>,
        outputs: &[StorageId],
        mutation: Mutation,
    ) -> PyResult<()> {
        for (&input, &target) in record.form.written.iter().zip(outputs) {
            let object = (*inputs.objects[input as usize]).clone();
            let moved = self.moved(inputs.sids[input as usize], mutation);
            self.install(py, target, Source::of(object)?, moved)?;
        }
        Ok(())
    }

    /// Whether the bytes of an input that a replay wrote are counted already: then they belong to the new version now,
    /// and are taken out of the old one's buffer.
    pub(super) fn moved(&mut self, input: StorageId, mutation: Mutation) -> Moved {
        match mutation {
            Mutation::Consume => {
                self.storages.set_buffer(input, Buffer::Empty);
                Moved::Bytes
            }
            Mutation::Copy => Moved::New,
        }
    }

    /// Gives the results of a replay to the storages of the op's outputs.
    fn install_returned(
        &mut self,
        py: Python<'_>,
        record: &Record,
        result: &Bound<'_, PyAny>,
        outputs: &[StorageId],
    ) -> PyResult<()> {
        if record.form.results.iter().all(Option::is_none) {
            return Ok(());
        }
        let flat = self.internals.flatten.bind(py).call1((result,))?;
        let storage_of = self.internals.untyped_storage.clone_ref(py);
        self.install_results(py, record, outputs, |i| {
            let tensor = flat.get_item(i)?;
            if tensor.is_none() {
                return Ok(None);
            }
            Source::of(storage_of.bind(py).call1((&tensor,))?).map(Some)
        })
    }

    /// Gives each result of a replay that has a storage of its own to the storage of the op's output.
    pub(super) fn install_results(
        &mut self,
        py: Python<'_>,
        record: &Record,
        outputs: &[StorageId],
        mut result: impl FnMut(usize) -> PyResult<Option<Source>>,
    ) -> PyResult<()> {
        for (i, output) in record.form.results.iter().enumerate() {
            let Some(&target) = output.and_then(|k| outputs.get(k as usize)) else {
                continue;
            };
            match result(i)? {
                Some(source) => self.install(py, target, source, Moved::New)?,
                None => self.check_missing(target)?,
            }
        }
        Ok(())
    }

    /// Refuses a replay that did not return what the first run did. A storage without bytes is one that the first run
    /// did not return either: a recurrent layer's workspace without autograd, for one.
    fn check_missing(&self, target: StorageId) -> PyResult<()> {
        if self.engine.bytes(target).0 == 0 {
            return Ok(());
        }
        Err(PyRuntimeError::new_err(
            "remat: a replay returned less than the first run",
        ))
    }

    /// Gives the bytes of `source` to an engine storage, unless it has its own already.
    pub(super) fn install(
        &mut self,
        py: Python<'_>,
        sid: StorageId,
        source: Source,
        moved: Moved,
    ) -> PyResult<()> {
        match self.storages.buffer(sid) {
            Buffer::Scratch(_) => Ok(()),
            Buffer::Live(id) => self.install_live(py, *id, &source, moved),
            Buffer::Empty => {
                let Source { owner, bytes, .. } = source;
                let device = match source.device {
                    Some(device) => Some(device),
                    None => {
                        let object = owner.object(py)?;
                        self.device_of(&object)?
                    }
                };
                if let Some(device) = device.filter(|_| moved == Moved::New) {
                    self.ledger.add(device, bytes);
                }
                let device = device.unwrap_or(DeviceId(0));
                let scratch = Scratch {
                    owner,
                    bytes,
                    device,
                };
                self.storages.set_buffer(sid, Buffer::Scratch(scratch));
                Ok(())
            }
        }
    }

    fn install_live(
        &mut self,
        py: Python<'_>,
        id: LiveId,
        source: &Source,
        moved: Moved,
    ) -> PyResult<()> {
        let bytes = source.bytes;
        let Some(live) = self.storages.live(id).filter(|live| !live.present) else {
            return Ok(());
        };
        if live.bytes != bytes {
            return Err(PyRuntimeError::new_err(format!(
                "remat: a replay made {bytes} bytes where the first run made {}",
                live.bytes
            )));
        }
        let (imp, device) = (live.imp, live.device);
        let Some(_kept) = live.keep(py)? else {
            return Ok(());
        };
        let made = source.owner.imp(py)?;
        // SAFETY: `_kept` and `source` are in scope and own the two storages. One is evicted and the other was made
        // by the replay that just ended, so no op reads or writes them. The evicted one gets as many bytes as its size
        // says (compared above), so its guard may go down. `source` gets none, and the executor uses it no more.
        unsafe {
            self.internals.layout.set_guard(py, imp, Guard::Down);
            self.internals.layout.swap(py, imp, made);
        }
        if let Some(live) = self.storages.live_mut(id) {
            live.present = true;
        }
        if let Some(timeline) = &self.storages.timeline {
            timeline.tell(|recorder| recorder.returned(id));
        }
        if moved == Moved::New {
            self.ledger.add(device, bytes);
        }
        Ok(())
    }
}
