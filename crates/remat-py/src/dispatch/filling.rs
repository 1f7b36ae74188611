//! Calls of a known form that give blank memory its first value.

use std::sync::Arc;

use pyo3::prelude::*;
use remat_core::{Output, Replay};

use super::forms::Known;
use super::inputs::records;
use super::known::spec_of;
use super::running::{Blank, Running};
use super::state::State;
use crate::call::stacked::Stacked;
use crate::call::template::Dispatched;
use crate::ffi::boxed::Value;
use crate::ffi::dispatcher::Torch;
use crate::ffi::gil::Attach;
use crate::tracking::live::LiveId;

impl State {
    /// Announces a call that fills blank memory; `None` if this one does not, or has to go through Python.
    ///
    /// # Safety
    /// The values that `stacked` names are alive, on the stack of the call.
    pub(super) unsafe fn begin_filling(
        &mut self,
        gil: impl Attach,
        torch: &Torch,
        call: &Dispatched<'_>,
        stacked: &Stacked,
        known: Arc<Known>,
    ) -> PyResult<Option<Box<Running>>> {
        let Some(target) = self.blank_target(stacked, &known) else {
            return Ok(None);
        };
        // SAFETY: as the caller promises.
        let Some(inputs) = (unsafe { self.inputs_of(gil, torch, stacked, &known)? }) else {
            return Ok(None);
        };
        let storages = &self.executor.storages;
        let is_blank = |&id: &LiveId| storages.live(id).is_none_or(|live| live.blank);
        if inputs.lives.iter().any(is_blank) {
            return Ok(None);
        }
        // SAFETY: as the caller promises.
        let records = || Ok(unsafe { records(torch, stacked) });
        if self.takes_in_outside(known.grad, &inputs.lives, records)? {
            return Ok(None);
        }
        // SAFETY: as the caller promises.
        let chain = unsafe { self.prepare_known(gil, torch, stacked, &known, &inputs)? };
        let Some(blank) = self.release_blank(gil, target, &inputs.tensors)? else {
            return Ok(None);
        };
        if let Some(live) = self.executor.storages.live_mut(target) {
            live.blank = false;
        }
        let spec = spec_of(&known, &inputs.tensors, Replay::Allowed);
        let op = match self.begin_filled(gil, &spec, blank) {
            Ok(op) => op,
            Err(error) => {
                gil.attach(|py| self.readopt(py, target))?;
                return Err(error);
            }
        };
        // SAFETY: as the caller promises.
        unsafe { self.make_template(gil, torch, call, stacked, &known) };
        let running = Running {
            blank: Some(blank),
            ..Running::of(known, op, inputs, chain, stacked.state, Replay::Allowed)
        };
        Ok(Some(running.boxed(&mut self.buffers.running)))
    }

    /// The blank storage among the arguments of a call that it fills entirely.
    fn blank_target(&self, stacked: &Stacked, known: &Known) -> Option<LiveId> {
        let storage = stacked.storages[known.roles.filled? as usize];
        let (id, _) = self.executor.storages.find_at(storage)?;
        let Output::Fresh { bytes, .. } = *known.outputs.first()? else {
            return None;
        };
        let tiny = self.tiny;
        let live = self.executor.storages.live(id)?;
        let fits = live.blank && live.bytes == bytes.0 && live.bytes > tiny;
        (fits && live.outside.is_none() && !live.freed).then_some(id)
    }

    /// Takes in the first value of blank memory.
    pub(super) fn finish_filling_known(
        &mut self,
        gil: impl Attach,
        torch: &Torch,
        running: Box<Running>,
        blank: Blank,
        results: &[Value],
        stacked: &Stacked,
    ) -> PyResult<()> {
        let made = self.made_by(running.op);
        let finished = self.tell_engine(gil, &running.completed(&made, None))?;
        self.fill_buffer(blank, made[0]);
        finished.map_err(|e| self.executor.refusal(gil, &e))?;
        self.settle_known(gil, torch, running, results, made, stacked)
    }

    /// Takes an op back that did not run, or not to its end.
    pub(super) fn take_back(&mut self, py: Python<'_>, running: &Running) -> PyResult<()> {
        if let Some(blank) = running.blank {
            self.executor.cancel(py, running.op)?;
            return self.readopt(py, blank.id);
        }
        let made = self.executor.engine.outputs(running.op).to_vec();
        self.take_back_raised(py, &running.completed(&made, None), &running.inputs.lives)
    }
}
