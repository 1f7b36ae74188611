//! Memory that was allocated and not written to, and the op that gives it its first value.

use std::cmp::Ordering;

use pyo3::prelude::*;
use remat_core::{Bytes, OpId, OpSpec, Output, Replay, TensorId};

use super::costs::Completed;
use super::op::{Prepared, Ran};
use super::running::Blank;
use super::state::State;
use crate::call::arguments::Walk;
use crate::call::func::Func;
use crate::call::invocation::Invocation;
use crate::call::view::{BLANK, View};
use crate::ffi::gil::Attach;
use crate::tracking::buffers::Buffer;
use crate::tracking::live::LiveId;

impl State {
    /// The input that the op overwrites entirely, if that is a blank storage. Blank storages that are used otherwise
    /// stay pinned: something may have written to them by raw pointer.
    pub(super) fn filled(
        &mut self,
        py: Python<'_>,
        func: &Func,
        walked: &Walk,
    ) -> PyResult<Option<u32>> {
        let mut filled = None;
        for (i, &id) in walked.lives.iter().enumerate() {
            let live = self.executor.storages.live_mut(id);
            let Some(live) = live.filter(|live| live.blank) else {
                continue;
            };
            live.blank = false;
            let bytes = live.bytes;
            let mut views = walked.views.iter().filter(|v| v.input == i as u32);
            let (Some(view), None) = (views.next(), views.next()) else {
                continue;
            };
            let only_written = func.fills && walked.written[..] == [i as u32];
            if only_written
                && view.form.is_none()
                && bytes > self.tiny
                && covered(py, view)? == bytes
            {
                filled = Some(i as u32);
            }
        }
        Ok(filled)
    }

    /// Runs an op that gives a blank storage its first value. To the engine it is an op with a fresh output.
    pub(super) fn fill(
        &mut self,
        call: &Invocation<'_, '_>,
        prepared: &mut Prepared,
        filled: u32,
    ) -> PyResult<Py<PyAny>> {
        let py = call.py();
        let id = take_out(&mut prepared.walked, filled);
        let rng = if call.func.random {
            Some(self.rng_state(call)?)
        } else {
            None
        };
        let chain = self.executor.chain(&prepared.walked.inputs);
        let Some(blank) = self.release_blank(py, id, &prepared.walked.inputs)? else {
            return Ok(call.call()?.unbind());
        };
        let outputs = [Output::Fresh {
            bytes: Bytes(blank.bytes),
            device: blank.device,
        }];
        let ran = match self.run_filling(call, prepared, &outputs, rng, blank) {
            Ok(ran) => ran,
            Err(e) => {
                self.readopt(py, id)?;
                return Err(e);
            }
        };
        let completed = Completed {
            op: ran.op,
            inputs: &prepared.walked.inputs,
            outputs: &outputs,
            made: &ran.made,
            signature: &prepared.signature,
            announced: Some(prepared.room),
            replay: Replay::Allowed,
            cost: ran.cost,
            sizes: None,
        };
        let finished = self.tell_engine(py, &completed)?;
        self.fill_buffer(blank, ran.made[0]);
        finished.map_err(|e| self.executor.refusal(py, &e))?;
        prepared.signature.leave(0); // the bytes are those of the blank storage
        prepared.walked.written.clear();
        let rng = ran.rng.as_ref().map(|states| states.bind(py));
        let learned = self.learn_filling(call.func, prepared, rng, outputs[0]);
        let room = Some((blank.bytes, blank.device));
        self.keep_called(call.func, prepared, &ran, learned, vec![Some(0)], room)?;
        self.executor.note_chain(&ran.made, chain);
        self.executor.collect();
        Ok(ran.result.unbind())
    }

    /// Releases the constant that stands for a blank storage. It gives way to the op's output, byte for byte; until
    /// then it has its bytes, so the op's inputs are brought back before. In an arena its bytes are taken away, for the
    /// output has a place of its own there.
    pub(super) fn release_blank(
        &mut self,
        gil: impl Attach,
        id: LiveId,
        inputs: &[TensorId],
    ) -> PyResult<Option<Blank>> {
        if self.executor.arena.is_none() {
            self.executor.bring_back(gil, inputs)?;
        }
        let Some(live) = self.executor.storages.live(id) else {
            return Ok(None);
        };
        let (tensor, bytes, device) = (live.tensor, live.bytes, live.device);
        if self.executor.arena.is_some() {
            gil.attach(|py| self.executor.sync(py))?;
        }
        let sid = self.executor.storage_of(tensor);
        self.executor.storages.set_buffer(sid, Buffer::Empty);
        self.executor.release(gil, tensor)?;
        let lifted =
            self.executor.arena.is_some() && gil.attach(|py| self.executor.lift_blank(py, id))?;
        Ok(Some(Blank {
            id,
            bytes,
            device,
            lifted,
        }))
    }

    /// Announces an op that fills a blank storage. One whose bytes were taken away gets them where the engine has the
    /// op's output.
    pub(super) fn begin_filled(
        &mut self,
        gil: impl Attach,
        spec: &OpSpec<'_>,
        blank: Blank,
    ) -> PyResult<OpId> {
        let begun = self.begin_in_place(gil, spec);
        if !blank.lifted {
            return begun;
        }
        gil.attach(|py| {
            let placed = begun.and_then(|op| match self.executor.place_blank(py, blank.id) {
                Ok(()) => Ok(op),
                Err(error) => self.executor.cancel(py, op).and(Err(error)),
            });
            if placed.is_err() {
                self.executor.restore_blank(py, blank.id)?;
            }
            placed
        })
    }

    /// Announces and runs an op that fills a blank storage.
    fn run_filling<'py>(
        &mut self,
        call: &Invocation<'_, 'py>,
        prepared: &mut Prepared,
        outputs: &[Output],
        rng: Option<Py<PyAny>>,
        blank: Blank,
    ) -> PyResult<Ran<'py>> {
        let signature = &mut prepared.signature;
        let spec = OpSpec {
            inputs: &prepared.walked.inputs,
            outputs,
            workspace: signature.room(),
            workspace_device: signature.workspace_device,
            replay: Replay::Allowed,
        };
        let py = call.py();
        let op = self.begin_filled(py, &spec, blank)?;
        match self.call(call, signature) {
            Ok((result, cost)) => Ok(Ran {
                op,
                made: self.executor.engine.outputs(op).to_vec(),
                result,
                replay: Replay::Allowed,
                cost,
                rng,
            }),
            Err(e) => self.executor.cancel(py, op).and(Err(e)),
        }
    }

    /// Notes that a storage has the value of a tensor now.
    pub(super) fn fill_buffer(&mut self, blank: Blank, tensor: TensorId) {
        let sid = self.executor.storage_of(tensor);
        if let Some(live) = self.executor.storages.live_mut(blank.id) {
            live.tensor = tensor;
        }
        let buffer = Buffer::Live(blank.id);
        self.executor.storages.set_buffer(sid, buffer);
        if let (Some(arena), false) = (&mut self.executor.arena, blank.lifted) {
            arena.stale = true; // the bytes are at the blank storage's place, not at the one that the engine chose
        }
        self.executor.keep_results();
    }

    /// Takes a storage back in as a constant, after the op that was to fill it did not run.
    pub(super) fn readopt(&mut self, py: Python<'_>, id: LiveId) -> PyResult<()> {
        let Some(live) = self.executor.storages.live(id) else {
            return Ok(());
        };
        let object = live.upgrade(py)?;
        if let Some(former) = self.executor.storages.forget(id) {
            self.executor.uncount(py, &former)?;
            let device = former.device;
            drop(former); // it is watched anew
            if let Some(object) = object {
                self.executor.constant(&object, device)?;
            }
        }
        Ok(())
    }
}

/// Bytes of a view's elements; none of a tensor whose sizes do not tell them.
fn covered(py: Python<'_>, view: &View) -> PyResult<u64> {
    let width: u64 = view.dtype.bind(py).getattr("itemsize")?.extract()?;
    let numel = view.geometry.numel().filter(|_| view.form.is_none());
    Ok(numel.unwrap_or(0).saturating_mul(width))
}

/// Takes an input out of a walk; its view becomes one of a blank storage.
fn take_out(walked: &mut Walk, filled: u32) -> LiveId {
    walked.inputs.remove(filled as usize);
    for view in &mut walked.views {
        match view.input.cmp(&filled) {
            Ordering::Equal => view.input = BLANK,
            Ordering::Greater => view.input -= 1,
            Ordering::Less => {}
        }
    }
    walked.lives.remove(filled as usize)
}
