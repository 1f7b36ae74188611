//! One op under the budget: its inputs are brought back and room is made, it runs, and its results are taken in.

use std::sync::Arc;

use pyo3::prelude::*;
use remat_core::{Bytes, DeviceId, Engine, OpId, OpSpec, Output, Replay};

use super::costs::Completed;
use super::forms::Likeness;
use super::op::{Announced, Prepared, Ran};
use super::outcome::Outcome;
use super::placed::{ATTEMPTS, repeatable};
use super::state::State;
use super::stats::Unseen;
use crate::call::arguments::{Walk, walk};
use crate::call::form::{Form, kind_of};
use crate::call::func::{Func, Kind};
use crate::call::global_state::StateNumber;
use crate::call::invocation::Invocation;
use crate::call::random::RandomState;
use crate::call::record::{Context, GradMode, Record};
use crate::call::signature::{Predicted, Signature};
use crate::call::view::Number;
use crate::executor::{Executor, fresh};
use crate::ffi::gil::Attach;
use crate::ffi::layout::Guard;
use crate::timeline::Recorder;
use crate::tracking::buffers::Buffer;
use crate::tracking::live::LiveId;

/// The bytes of a call that was not seen before, as Python's `Prediction` tells them.
#[derive(FromPyObject)]
struct Prediction<'py> {
    outputs: Vec<Option<(u64, Place<'py>)>>,
    workspace: u64,
    leaves: u64,
    place: Place<'py>,
    exact: bool,
    told: Option<Py<PyAny>>,
    settled: bool,
    copies_strided: bool,
}

/// A device's name, and the device.
type Place<'py> = (String, Bound<'py, PyAny>);

impl State {
    /// Runs an op under the budget, unless a tensor subclass among its arguments wants to see the call itself.
    pub(super) fn run(&mut self, call: &Invocation<'_, '_>) -> PyResult<Outcome> {
        let py = call.py();
        self.set_current(&call.func.name);
        let (stats, unseen) = self.stats_use(call)?;
        let walked = walk(&mut self.torch, &mut self.executor, call, stats)?;
        if walked.wrapper {
            return Ok(Outcome::Declined);
        }
        if !self.torch.complex_seen {
            return self.run_or_prepare(call, walked, unseen);
        }
        let internals = &self.executor.internals;
        let exclude_again = internals.exclude_again.clone_ref(py);
        let excluded = internals.handle_lazy.bind(py).call0()?;
        let outcome = self.run_or_prepare(call, walked, unseen);
        exclude_again.bind(py).call1((excluded,))?;
        outcome
    }

    fn run_or_prepare(
        &mut self,
        call: &Invocation<'_, '_>,
        walked: Walk,
        unseen: Option<Unseen>,
    ) -> PyResult<Outcome> {
        if call.func.kind == Kind::Foreign {
            let foreign = self.prepare_foreign(call, walked, unseen)?;
            return Ok(Outcome::Foreign(Box::new(foreign)));
        }
        self.run_walked(call, walked, unseen).map(Outcome::Done)
    }

    /// Runs an op whose arguments were walked.
    fn run_walked(
        &mut self,
        call: &Invocation<'_, '_>,
        mut walked: Walk,
        unseen: Option<Unseen>,
    ) -> PyResult<Py<PyAny>> {
        let (py, func) = (call.py(), call.func);
        let (grad, state) = self.sign(call, &mut walked)?;
        let data_dependent =
            func.data_dependent && !(func.takes_masks && has_no_mask(py, &walked)?);
        self.write_aliases(&mut walked);
        let pinning = walked.opaque || func.kind == Kind::Restructure;
        if walked.parameters && grad == GradMode::On {
            self.pin_parameters(call)?;
        }
        if pinning {
            self.pin_all_in_place(py, &walked.lives)?;
        }
        let chain = self.executor.chain(&walked.inputs);
        self.executor.cut_chains(py, chain)?;
        self.pin_all_in_place(py, &walked.parts)?;
        if func.kind == Kind::Restructure {
            self.lower_guards_of_freed(py, &walked.lives)?;
        }
        let (signature, told) = match self.knowledge.signatures.remove(&walked.signature) {
            Some(known) => (known, None),
            None => self.predict(call)?,
        };
        let replay = if pinning || func.blank {
            Replay::Forbidden
        } else {
            Replay::Allowed
        };
        let mut prepared = Prepared {
            walked,
            room: signature.room(),
            signature,
            grad,
            state,
            replay,
            unseen,
            data_dependent,
        };
        let arity = self.arity;
        let result = self.run_signed(call, &mut prepared);
        let Prepared {
            walked, signature, ..
        } = prepared;
        if let (Some(arity), true) = (arity, signature.measured) {
            arity.seen.note_taken(signature.taken());
        }
        if let (Some(told), true) = (told, signature.measured) {
            told.call1(py, (signature.workspace.0,))?;
        }
        if !data_dependent {
            self.knowledge.remember(walked.signature, signature);
        }
        result
    }

    /// Completes the signature of a call by the settings under which it runs.
    pub(super) fn sign(
        &mut self,
        call: &Invocation<'_, '_>,
        walked: &mut Walk,
    ) -> PyResult<(GradMode, StateNumber)> {
        let py = call.py();
        let grad = self.grad_mode(py)?;
        walked.signature ^= u64::from(grad == GradMode::On).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let state = &mut self.executor.global_state;
        let state = state.current(py, call.surroundings.autocast)?;
        walked.signature ^= state.bits().wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
        walked.signature ^= self.executor.devices_of(py, &walked.lives)?;
        Ok((grad, state))
    }

    /// Adds the storages that a write changes beside its target: those over the same memory, which torch did not
    /// allocate.
    pub(super) fn write_aliases(&self, walked: &mut Walk) {
        for k in 0..walked.written.len() {
            let written = walked.lives[walked.written[k] as usize];
            for (id, tensor) in self.executor.storages.aliases(written) {
                let input = match walked.inputs.iter().position(|&t| t == tensor) {
                    Some(input) => input,
                    None => {
                        walked.inputs.push(tensor);
                        walked.lives.push(id);
                        walked.inputs.len() - 1
                    }
                } as u32;
                if !walked.written.contains(&input) {
                    walked.written.push(input);
                }
            }
        }
    }

    /// Pins storages whose addresses are known outside of the session. Replays that this takes change no storage's
    /// tensor.
    pub(super) fn pin_all_in_place(&mut self, py: Python<'_>, lives: &[LiveId]) -> PyResult<()> {
        for &id in lives {
            self.executor.pin_in_place(py, id)?;
        }
        Ok(())
    }

    /// Lets an op touch storages whose bytes the program took away, because it may give them bytes again.
    fn lower_guards_of_freed(&self, py: Python<'_>, lives: &[LiveId]) -> PyResult<()> {
        for &id in lives {
            let live = self.executor.storages.live(id).filter(|live| live.freed);
            let Some(live) = live else { continue };
            let Some(_kept) = live.keep(py)? else {
                continue;
            };
            // SAFETY: `_kept` is in scope and owns the storage. A freed storage has no bytes, and a size of 0.
            unsafe {
                let layout = self.executor.internals.layout;
                layout.set_guard(py, live.imp, Guard::Down);
            }
        }
        Ok(())
    }

    /// The signature of a call that was not seen before, with estimates in place of measurements. Python wants to be
    /// told of the workspace once it is measured, by the function that is returned.
    fn predict(&mut self, call: &Invocation<'_, '_>) -> PyResult<(Signature, Option<Py<PyAny>>)> {
        let predict = self.executor.internals.predict.bind(call.py());
        let found = predict.call1((&call.func.overload, call.args, call.kwargs))?;
        self.signature_of(&found)
    }

    /// The signature of a call by Python's `Prediction`, and the function that is to be told of the workspace.
    pub(super) fn signature_of(
        &mut self,
        found: &Bound<'_, PyAny>,
    ) -> PyResult<(Signature, Option<Py<PyAny>>)> {
        let found: Prediction<'_> = found.extract()?;
        if let Some(candidate) = &mut self.candidate {
            candidate.like_others = match (found.settled, found.copies_strided) {
                (false, _) => None,
                (true, false) => Some(Likeness::Same),
                (true, true) => Some(Likeness::CopiesStrided),
            };
        }
        let mut predicted = Vec::with_capacity(found.outputs.len());
        for output in found.outputs {
            predicted.push(match output {
                Some((bytes, (name, device))) => Predicted::Fresh {
                    bytes: Bytes(bytes),
                    device: self.executor.device_id(&name, &device)?,
                },
                None => Predicted::Shared,
            });
        }
        let workspace_device = self.executor.device_id(&found.place.0, &found.place.1)?;
        let signature = Signature {
            outputs: predicted,
            workspace: Bytes(found.workspace),
            leaves: Bytes(found.leaves),
            left: false,
            workspace_device,
            measured: found.exact,
            spans: found.exact && found.workspace == 0,
            calls: 0,
            cost: 0,
        };
        Ok((signature, found.told))
    }

    /// Runs a call whose signature is known, and keeps its record.
    fn run_signed(
        &mut self,
        call: &Invocation<'_, '_>,
        prepared: &mut Prepared,
    ) -> PyResult<Py<PyAny>> {
        let py = call.py();
        if !prepared.walked.stats.is_empty() {
            let walked = &mut prepared.walked;
            self.overwrite(py, "remat.update_stats", &walked.stats, 0)?;
            self.look_again(&walked.lives, &mut walked.inputs);
        }
        let unseen = prepared.unseen.take();
        let before = self.stats_before(call, unseen.as_ref())?;
        let filled = self.filled(py, call.func, &prepared.walked)?;
        let records = || call.requires_grad();
        if self.takes_in_outside(prepared.grad, &prepared.walked.lives, records)? {
            prepared.replay = Replay::Forbidden;
        } else if let Some(filled) = filled {
            return self.fill(call, prepared, filled);
        }
        let chain = self.executor.chain(&prepared.walked.inputs);
        let mut announced = Announced::of(&prepared.walked, &prepared.signature);
        let Prepared { walked, grad, .. } = &*prepared;
        let replay = match prepared.replay {
            Replay::Forbidden => Replay::Forbidden,
            Replay::Allowed => {
                self.replay_of(&announced.outputs, *grad, &walked.lives, &walked.written)
            }
        };
        if prepared.grad == GradMode::On {
            self.executor.storages.note_forward();
        }
        let ran = self.attempt(call, prepared, &announced, replay)?;
        let dense = self.finish(prepared, &mut announced, &ran)?;
        let op = ran.op;
        let foreseen = self.learn_stats_use(call, unseen.zip(before))?;
        let learned = if dense && foreseen {
            let rng = ran.rng.as_ref().map(|states| states.bind(py));
            self.learn_form(call.func, prepared, rng)
        } else {
            None
        };
        if replay == Replay::Allowed && !(dense && foreseen) {
            self.pin_outputs(py, op)?;
        } else if replay == Replay::Allowed && !announced.outputs.is_empty() {
            let results = announced.results;
            self.keep_called(call.func, prepared, &ran, learned, results, None)?;
            self.executor.note_chain(&ran.made, chain);
        }
        if call.func.blank {
            self.note_blank(&ran.result);
        }
        self.executor.collect();
        Ok(ran.result.unbind())
    }

    /// Keeps the record of a call, of the form and with the numbers that were learned or else with these results. A
    /// call that fills a blank storage has one of so many bytes there.
    pub(super) fn keep_called(
        &mut self,
        func: &Func,
        prepared: &mut Prepared,
        ran: &Ran<'_>,
        learned: Option<(Arc<Form>, Vec<Number>)>,
        results: Vec<Option<u32>>,
        blank: Option<(u64, DeviceId)>,
    ) -> PyResult<()> {
        let py = ran.result.py();
        let rng = ran.rng.as_ref().map(|rng| rng.clone_ref(py).into());
        let context = Context {
            grad: prepared.grad,
            state: prepared.state,
            rng: rng.map(RandomState::Listed),
        };
        let Prepared {
            walked, signature, ..
        } = prepared;
        let (form, numbers) = learned.unwrap_or_else(|| {
            let form = Form::of(func, walked, results);
            (Arc::new(form), Vec::new())
        });
        let offsets = std::mem::take(&mut walked.offsets).into();
        self.executor.keep(py, ran.op, &walked.lives, || Record {
            numbers: numbers.into(),
            blank,
            ..Record::of(form, offsets, signature, context)
        })
    }

    /// Whether the engine may replay a call that replays by itself. It may not where all results are tiny, where a
    /// storage is written without autograd that was carried into a forward pass.
    pub(super) fn replay_of(
        &self,
        outputs: &[Output],
        grad: GradMode,
        lives: &[LiveId],
        written: &[u32],
    ) -> Replay {
        let all_tiny = outputs.iter().all(|output| match output {
            Output::Fresh { bytes, .. } => bytes.0 <= self.tiny,
            _ => false,
        });
        let storages = &self.executor.storages;
        let carried = grad == GradMode::Off && storages.any_carried(lives, written);
        if all_tiny || carried {
            Replay::Forbidden
        } else {
            Replay::Allowed
        }
    }

    /// Whether a call reads memory that torch did not allocate, such as a NumPy array, or writes to it. The program may
    /// write there without an op, as to a buffer of observations, and a replay would read what it wrote. Where autograd
    /// records the call it mostly saves what the call reads, so that plain eager would not bear such a write either.
    /// `records` tells whether it does, but for parameters among the inputs.
    pub(super) fn takes_in_outside(
        &self,
        grad: GradMode,
        lives: &[LiveId],
        records: impl FnOnce() -> PyResult<bool>,
    ) -> PyResult<bool> {
        let storages = &self.executor.storages;
        let lives = || lives.iter().filter_map(|&id| storages.live(id));
        let outside = lives().any(|live| live.outside.is_some() && !live.parameter);
        if !outside || grad == GradMode::Off {
            return Ok(outside);
        }
        Ok(!(lives().any(|live| live.parameter) || records()?))
    }

    /// Announces an op and runs it, again with more room if it finds none in the arena.
    fn attempt<'py>(
        &mut self,
        call: &Invocation<'_, 'py>,
        prepared: &mut Prepared,
        announced: &Announced,
        replay: Replay,
    ) -> PyResult<Ran<'py>> {
        let py = call.py();
        let Prepared {
            walked, signature, ..
        } = prepared;
        let mut attempts = 0;
        let func = call.func.overload.as_ptr() as usize;
        self.executor.note_called(|| kind_of(func, &walked.views));
        loop {
            let rng = if call.func.random {
                Some(self.rng_state(call)?)
            } else {
                None
            };
            let op = self.begin(
                py,
                &OpSpec {
                    inputs: &walked.inputs,
                    outputs: &announced.outputs,
                    workspace: signature.room(),
                    workspace_device: signature.workspace_device,
                    replay,
                },
            )?;
            let error = match self.call(call, signature) {
                Ok((result, cost)) => {
                    return Ok(Ran {
                        op,
                        made: self.executor.engine.outputs(op).to_vec(),
                        result,
                        replay,
                        cost,
                        rng,
                    });
                }
                Err(error) => error,
            };
            let made = self.executor.engine.outputs(op).to_vec();
            let raised = Completed {
                op,
                inputs: &walked.inputs,
                outputs: &announced.outputs,
                made: &made,
                signature,
                announced: None,
                replay,
                cost: 0,
                sizes: None,
            };
            self.take_back_raised(py, &raised, &walked.lives)?;
            attempts += 1;
            if !self.learn_from(py, &error, signature) {
                return Err(error);
            }
            if attempts == ATTEMPTS || !repeatable(call.func, &walked.written) {
                return Err(self.executor.no_block(py));
            }
        }
    }

    /// Pins the outputs of an op that cannot be replayed, because a result has no storage of its own.
    pub(super) fn pin_outputs(&mut self, py: Python<'_>, op: OpId) -> PyResult<()> {
        for tensor in self.executor.engine.outputs(op).to_vec() {
            let sid = self.executor.storage_of(tensor);
            if let Buffer::Live(id) = *self.executor.storages.buffer(sid) {
                self.executor.pin(py, id)?;
            }
        }
        Ok(())
    }

    /// Notes that nothing was written to a result's storage yet.
    fn note_blank(&mut self, result: &Bound<'_, PyAny>) {
        let id = self.live_of(result);
        if let Some(live) = id.and_then(|id| self.executor.storages.live_mut(id)) {
            live.blank = true;
        }
    }

    /// Announces an op and performs the engine's steps.
    pub(super) fn begin(&mut self, gil: impl Attach, spec: &OpSpec<'_>) -> PyResult<OpId> {
        match self.executor.arena {
            Some(_) => self.begin_placed(gil, spec),
            None => self.begin_counted(gil, spec),
        }
    }

    /// Announces an op and performs the engine's steps, without regard to addresses.
    pub(super) fn begin_counted(&mut self, gil: impl Attach, spec: &OpSpec<'_>) -> PyResult<OpId> {
        if self.executor.storages.timeline.is_some() {
            gil.attach(|py| self.look(py, spec))?;
        }
        self.executor.drop_unreferenced_in_time(gil)?;
        let op = loop {
            match self.begin_once(gil, spec) {
                // Each time more room is left for blocks, until the plan fits or is refused.
                Err(_) if self.executor.take_short() => {}
                begun => break begun?,
            }
        };
        self.executor.hold_newly_pinned(gil)?;
        self.executor.running = Some(op);
        if let Some(timeline) = &self.executor.storages.timeline {
            timeline.tell(Recorder::begun);
        }
        Ok(op)
    }

    /// Announces an op and performs the engine's steps. Fails where blocks turn out larger than planned.
    fn begin_once(&mut self, gil: impl Attach, spec: &OpSpec<'_>) -> PyResult<OpId> {
        self.executor.look_at_accelerators(gil)?;
        let workspace = self.executor.workspace_in_blocks(spec);
        let replay = if self.bodies.write(&self.executor.storages, spec.inputs) {
            Replay::Forbidden
        } else {
            spec.replay
        };
        let spec = &OpSpec {
            workspace,
            replay,
            ..*spec
        };
        // Python may have run since deaths were last seen to: no plan may read a storage that is gone.
        self.executor.drain_deaths(gil)?;
        let would_fit_alone = |executor: &Executor| executor.op_would_fit_alone(spec);
        let begin = |engine: &mut Engine| engine.begin(spec);
        let op = self.executor.ask(gil, would_fit_alone, begin)?;
        self.executor.note_pinned();
        if !self.executor.engine.steps().is_empty() {
            self.executor.accelerators.checking = true;
            let performed = self.executor.perform(gil);
            self.executor.accelerators.checking = false;
            if let Err(error) = performed {
                self.executor.cancel(gil, op)?;
                return Err(error);
            }
            let needed = Bytes(workspace.0 + fresh(spec).sum::<u64>());
            let device = spec.workspace_device;
            let checked = gil.attach(|py| self.executor.check_blocks(py, needed, device));
            if let Err(error) = checked {
                self.executor.cancel(gil, op)?;
                return Err(error);
            }
        }
        Ok(op)
    }
}

/// Whether no tensor among the arguments can be a mask: those are of `bool` or of bytes.
fn has_no_mask(py: Python<'_>, walked: &Walk) -> PyResult<bool> {
    for view in &walked.views {
        let size: u64 = view.dtype.bind(py).getattr("itemsize")?.extract()?;
        if size == 1 {
            return Ok(false);
        }
    }
    Ok(!walked.views.is_empty())
}
