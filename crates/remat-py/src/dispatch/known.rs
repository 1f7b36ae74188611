//! Calls of a known form: all that an op needs is known before it runs, and no Python is entered for it.
//!
//! What differs from the form after all (a result of another size, a storage of a view's own) is taken in as on the way
//! through Python.

use pyo3::prelude::*;
use pyo3::types::PyList;
use remat_core::{Bytes, DeviceId, OpId, OpSpec, Output, Replay, TensorId};
use smallvec::SmallVec;

use super::buffers::{Fresh, FreshStorage};
use super::forms::{Known, find};
use super::inputs::records;
use super::op::{Announced, Prepared, Ran, sizes_of};
use super::running::{Begun, Inputs, Running, form_number};
use super::state::State;
use crate::call::arguments::Walk;
use crate::call::record::{Context, GradMode, Record};
use crate::call::stacked::{Stacked, keeps_tensors};
use crate::call::template::Dispatched;
use crate::ffi::boxed::{Item, Value, storage_bytes};
use crate::ffi::dispatcher::Torch;
use crate::ffi::fastcall::call_one;
use crate::ffi::gil::Attach;
use crate::ffi::layout::Impl;
use crate::ffi::shell;
use crate::ffi::watch::Watched;
use crate::timeline::MemoryKind;
use crate::tracking::live::{Contents, LiveId, UNTOLD};

impl State {
    /// Announces a call of a known form; `None` if it has to go through Python.
    ///
    /// # Safety
    /// The call is in progress, and `stacked` was passed over its arguments.
    pub(super) unsafe fn begin_known(
        &mut self,
        gil: impl Attach,
        torch: &Torch,
        call: &Dispatched<'_>,
        stacked: &Stacked,
    ) -> PyResult<Option<Begun>> {
        self.watch_for_thrashing(gil)?;
        self.executor.drain_deaths(gil)?;
        if self.executor.arena.is_some() && !(keeps_tensors() && shell::are_rehearsed()) {
            return Ok(None);
        }
        let known = find(&self.known, stacked).cloned();
        if let Some(known) = known.as_ref().filter(|known| self.needs_no_record(known)) {
            // SAFETY: as the caller promises.
            let begun = unsafe { self.begin_unrecorded(gil, torch, stacked, known)? };
            if begun.is_some() {
                self.executor.engine.note_gap();
            }
            return Ok(begun.map(|_| Begun::Unrecorded(known.clone(), 0)));
        }
        if let Some(known) = &known {
            if self.may_pass(known, stacked) {
                // SAFETY: as the caller promises.
                let begun = unsafe { self.begin_unrecorded(gil, torch, stacked, known)? };
                if let Some(read) = begun {
                    let number = self.pass(gil, known, read)?;
                    return Ok(Some(Begun::Unrecorded(known.clone(), number)));
                }
            }
        }
        self.executor.tell_untold();
        if let Some(known) = find(&self.filling, stacked).cloned() {
            // SAFETY: as the caller promises.
            let running = unsafe { self.begin_filling(gil, torch, call, stacked, known)? };
            if running.is_some() {
                return Ok(running.map(Begun::Told));
            }
        }
        let Some(known) = known else {
            return Ok(None);
        };
        // SAFETY: as the caller promises.
        let Some(inputs) = (unsafe { self.inputs_of(gil, torch, stacked, &known)? }) else {
            return Ok(None);
        };
        if !self.is_usual(&known, &inputs.lives, stacked) {
            return Ok(None);
        }
        // SAFETY: as the caller promises.
        let chain = unsafe { self.prepare_known(gil, torch, stacked, &known, &inputs)? };
        self.update_statistics(gil, stacked, &known)?;
        let written = &known.form.written;
        // SAFETY: as the caller promises.
        let records = || Ok(unsafe { records(torch, stacked) });
        let outside = self.takes_in_outside(known.grad, &inputs.lives, records)?;
        let replay = if known.func.blank || outside {
            Replay::Forbidden
        } else {
            self.replay_of(&known.outputs, known.grad, &inputs.lives, written)
        };
        if known.grad == GradMode::On {
            self.executor.storages.note_forward();
        }
        self.executor.engine.note_form(form_number(stacked));
        self.executor.note_called(|| known.form.kind());
        let op = self.begin(gil, &spec_of(&known, &inputs.tensors, replay))?;
        if replay == Replay::Allowed {
            // SAFETY: as the caller promises.
            unsafe { self.make_template(gil, torch, call, stacked, &known) };
        }
        let running = Running::of(known, op, inputs, chain, stacked.state, replay);
        let running = running.boxed(&mut self.buffers.running);
        Ok(Some(Begun::Told(running)))
    }

    /// Makes the template of a form, unless it is there, if replays may do without Python: all is in main memory, and
    /// the probe found what they need.
    ///
    /// # Safety
    /// As for [`begin_known`](Self::begin_known).
    pub(super) unsafe fn make_template(
        &self,
        gil: impl Attach,
        torch: &Torch,
        call: &Dispatched<'_>,
        stacked: &Stacked,
        known: &Known,
    ) {
        let device = known.signature.workspace_device;
        let wanted = known.form.template.get().is_none()
            && shell::are_rehearsed()
            && self.is_main_memory(device, &known.outputs);
        if wanted {
            // An interpreter that has ended replays nothing.
            let _ = gil.attach(|py| {
                // SAFETY: as the caller promises.
                unsafe { known.form.make_template(py, torch, call, stacked) };
                Ok(())
            });
        }
    }

    /// Whether a device is main memory, and fresh outputs lie there.
    pub(super) fn is_main_memory(&self, device: DeviceId, outputs: &[Output]) -> bool {
        let here = |output: &Output| match *output {
            Output::Fresh { device: other, .. } => other == device,
            _ => true,
        };
        let name = self.executor.devices.get(usize::from(device.0));
        name.is_some_and(|device| device.name == "cpu") && outputs.iter().all(here)
    }

    /// Whether Python would not treat a call otherwise. Blank memory that is used otherwise than filled stays
    /// pinned: something may have written to it by raw pointer.
    fn is_usual(&mut self, known: &Known, lives: &[LiveId], stacked: &Stacked) -> bool {
        let storages = &mut self.executor.storages;
        let tiny = self.tiny;
        let usual = lives.iter().enumerate().all(|(at, &id)| {
            let written = known.form.written.contains(&(at as u32));
            storages.live(id).is_some_and(|live| {
                let may_be_filled = live.blank && known.func.fills && live.bytes > tiny;
                !may_be_filled && !(written && (live.outside.is_some() || live.freed))
            })
        });
        let alike = known.uses_statistics_alike(&stacked.numbers);
        if usual && alike {
            for &id in lives {
                if let Some(live) = storages.live_mut(id) {
                    live.blank = false;
                }
            }
        }
        usual && alike
    }

    /// Counts a call of a known form and pins what it must not lose. Returns the length of the chain of ops behind its
    /// results.
    ///
    /// # Safety
    /// As for [`begin_known`](Self::begin_known).
    pub(super) unsafe fn prepare_known(
        &mut self,
        gil: impl Attach,
        torch: &Torch,
        stacked: &Stacked,
        known: &Known,
        inputs: &Inputs,
    ) -> PyResult<u32> {
        self.ops += 1;
        self.set_current(&known.func.name);
        if known.grad == GradMode::On {
            // SAFETY: as the caller promises.
            unsafe { self.pin_parameters_of(gil, torch, stacked, known, &inputs.lives)? };
        }
        let chain = self.executor.chain(&inputs.tensors);
        if self.executor.cut_chains(gil, chain)? {
            return Ok(self.executor.chain(&inputs.tensors));
        }
        Ok(chain)
    }

    /// Tells the engine that a call updates running statistics.
    fn update_statistics(
        &mut self,
        gil: impl Attach,
        stacked: &Stacked,
        known: &Known,
    ) -> PyResult<()> {
        if known.roles.updated.is_empty() {
            return Ok(());
        }
        let storages = &self.executor.storages;
        let updated = known.roles.updated.iter();
        let updated = updated.map(|&at| storages.find_at(stacked.storages[at as usize]));
        let updated: Vec<LiveId> = updated.flatten().map(|(id, _)| id).collect();
        gil.attach(|py| self.overwrite(py, "remat.update_stats", &updated, 0))
    }

    /// Takes in the results of a call of a known form.
    ///
    /// # Safety
    /// The results are alive, on the stack of the call that returned.
    pub(super) unsafe fn finish_known(
        &mut self,
        gil: impl Attach,
        torch: &Torch,
        running: Box<Running>,
        results: &[Value],
        stacked: &Stacked,
    ) -> PyResult<()> {
        if let Some(blank) = running.blank {
            return self.finish_filling_known(gil, torch, running, blank, results, stacked);
        }
        let mut fresh = std::mem::take(&mut self.buffers.fresh);
        // SAFETY: as the caller promises.
        unsafe { self.sort_fresh(gil, torch, &running.known, results, stacked, &mut fresh) };
        if !fresh.usual {
            self.known.remove(&stacked.key);
            // SAFETY: as the caller promises.
            return gil.attach(|py| unsafe { self.finish_unusual(py, torch, *running, results) });
        }
        let made = self.made_by(running.op);
        let finished = self.tell_engine(gil, &running.completed(&made, Some(&fresh.sizes)))?;
        // SAFETY: as the caller promises.
        unsafe { self.take_in_fresh_known(gil, torch, &running.known, &fresh, results, &made)? };
        if self.executor.arena.is_some() {
            let storages = &fresh.storages;
            self.executor.check_outputs_at(running.op, |output| {
                let storage = storages.iter().find(|storage| storage.output == output)?;
                // SAFETY: as the caller promises: the result, on the stack, owns the storage.
                Some(unsafe { torch.boxed.data(storage.address) })
            });
        }
        self.buffers.fresh = fresh;
        let signature = &running.known.signature;
        let (device, workspace) = (signature.workspace_device, signature.workspace.0);
        self.executor.ledger.spike(device, workspace);
        for (k, &input) in running.known.form.written.iter().enumerate() {
            self.supersede(gil, running.inputs.lives[input as usize], made[k])?;
        }
        finished.map_err(|e| self.executor.refusal(gil, &e))?;
        self.check_written(gil, torch, &running)?;
        self.settle_known(gil, torch, running, results, made, stacked)
    }

    /// The tensors that the engine made for an op's outputs.
    pub(super) fn made_by(&mut self, op: OpId) -> Vec<TensorId> {
        let mut made = std::mem::take(&mut self.buffers.made);
        made.clear();
        made.extend_from_slice(self.executor.engine.outputs(op));
        made
    }

    /// Keeps what a replay of the op needs, pins gradients, and lets go of what is not needed any more: the arguments
    /// too, which are held up to here.
    pub(super) fn settle_known(
        &mut self,
        gil: impl Attach,
        torch: &Torch,
        mut running: Box<Running>,
        results: &[Value],
        made: Vec<TensorId>,
        stacked: &Stacked,
    ) -> PyResult<()> {
        self.executor.keep_results();
        self.keep_known(gil, &mut running, &made, stacked)?;
        self.buffers.made = made;
        if running.known.func.accumulates {
            self.pin_accumulated(gil, torch, results)?;
        }
        self.executor.collect();
        running.inputs.clear();
        std::mem::swap(&mut running.inputs, &mut self.buffers.inputs);
        self.buffers.running = Some(running);
        Ok(())
    }

    /// Takes in the storages of fresh results.
    ///
    /// # Safety
    /// The results are alive, on the stack of the call that returned.
    unsafe fn take_in_fresh_known(
        &mut self,
        gil: impl Attach,
        torch: &Torch,
        known: &Known,
        fresh: &Fresh,
        results: &[Value],
        made: &[TensorId],
    ) -> PyResult<()> {
        for storage in &fresh.storages {
            let k = storage.output as usize;
            let Output::Fresh { device, .. } = known.outputs[k] else {
                continue;
            };
            let contents = self.contents(made[k], fresh.sizes[k].0, device);
            // SAFETY: as the caller promises: the result, on the stack, owns the storage.
            let id = unsafe { self.insert_result(gil, torch, results, storage, contents)? };
            self.executor.ledger.add(device, contents.bytes);
            self.executor.note_if_unrecorded(id, made[k]);
            if known.func.blank {
                let live = self.executor.storages.live_mut(id);
                live.into_iter().for_each(|live| live.blank = true);
            }
        }
        Ok(())
    }

    /// Takes the storage of a fresh result into the table.
    ///
    /// # Safety
    /// The results are alive, on the stack of the call that returned, and one of them owns the storage.
    pub(super) unsafe fn insert_result(
        &mut self,
        gil: impl Attach,
        torch: &Torch,
        results: &[Value],
        storage: &FreshStorage,
        contents: Contents,
    ) -> PyResult<LiveId> {
        // SAFETY: as the caller promises.
        if let Some(watched) = unsafe { Watched::new(storage.address) } {
            return Ok(self.executor.storages.insert_watched(watched, contents));
        }
        gil.attach(|py| {
            // SAFETY: as the caller promises.
            let tensor = unsafe { wrap_result(py, torch, results, storage.place)? };
            let object = call_one(&self.torch.untyped_storage, &tensor)?;
            let imp = Impl::at(storage.address);
            self.executor.storages.insert(&object, imp, contents)
        })
    }

    pub(super) fn contents(&self, tensor: TensorId, bytes: u64, device: DeviceId) -> Contents {
        Contents {
            tensor,
            sid: self.executor.storage_of(tensor),
            bytes,
            device,
        }
    }

    /// Compares the results with the form.
    ///
    /// # Safety
    /// The results are alive, on the stack of the call that returned, and so are its arguments if
    /// [`keeps_tensors`].
    pub(super) unsafe fn sort_fresh(
        &self,
        gil: impl Attach,
        torch: &Torch,
        known: &Known,
        results: &[Value],
        stacked: &Stacked,
        fresh: &mut Fresh,
    ) {
        let boxed = torch.boxed;
        fresh.sizes.clear();
        fresh.sizes.extend(sizes_of(&known.outputs));
        fresh.storages.clear();
        fresh.usual = true;
        let mut at = 0;
        // SAFETY: the caller promises that the results are alive.
        unsafe {
            for_each_result(torch, results, &mut |_, item| {
                let expected = known.form.results.get(at).copied().flatten();
                at += 1;
                let Item::Tensor(tensor) = item else {
                    fresh.usual &= expected.is_none();
                    return;
                };
                let storage = tensor.storage(boxed);
                if storage == 0 {
                    fresh.usual = false;
                    return;
                }
                // What died while the op ran is not taken out of the table before the engine knows that it ran.
                let found = self.executor.storages.find_at(storage);
                let live = found.and_then(|(id, _)| self.executor.storages.live(id));
                let seen = live.is_some_and(|live| live.is_alive(gil))
                    || keeps_tensors() && stacked.storages.contains(&storage)
                    || fresh.storages.iter().any(|known| known.address == storage);
                match expected {
                    _ if seen => fresh.usual &= expected.is_none(),
                    Some(output) => {
                        fresh.sizes[output as usize] = Bytes(storage_bytes(boxed, storage));
                        fresh.storages.push(FreshStorage {
                            output,
                            place: at as u32 - 1,
                            address: storage,
                        });
                    }
                    None => fresh.usual = false,
                }
            });
        }
        let expected = known.form.results.iter().flatten().count();
        fresh.usual &= fresh.storages.len() == expected;
    }

    /// Takes in results that are not as the form says, as after a call through Python.
    unsafe fn finish_unusual(
        &mut self,
        py: Python<'_>,
        torch: &Torch,
        running: Running,
        results: &[Value],
    ) -> PyResult<()> {
        let list = PyList::empty(py);
        let mut wrapped = Ok(());
        // SAFETY: the caller promises that the results are alive.
        unsafe {
            for_each_result(torch, results, &mut |value, item| {
                let object = match item {
                    Item::Tensor(_) => torch.dispatcher.wrap(py, value),
                    _ => Ok(py.None().into_bound(py)),
                };
                let added = object.and_then(|object| list.append(object));
                if wrapped.is_ok() {
                    wrapped = added;
                }
            });
        }
        wrapped?;
        let known = &running.known;
        let mut announced = Announced {
            outputs: known.outputs.to_vec(),
            results: known.form.results.to_vec(),
        };
        let mut prepared = Prepared {
            walked: Walk {
                inputs: running.inputs.tensors,
                lives: running.inputs.lives,
                written: known.form.written.to_vec(),
                ..Walk::default()
            },
            signature: known.signature.clone(),
            room: known.signature.room(),
            grad: known.grad,
            state: running.state,
            replay: running.replay,
            unseen: None,
            data_dependent: false,
        };
        let ran = Ran {
            op: running.op,
            made: self.executor.engine.outputs(running.op).to_vec(),
            result: list.into_any(),
            replay: running.replay,
            cost: known.cost.nanoseconds(),
            rng: None,
        };
        self.finish(&mut prepared, &mut announced, &ran)?;
        // No record: what a replay of this call would return is not known.
        self.pin_outputs(py, running.op)
    }

    /// Takes in anew what an op resized that it declared to write.
    fn check_written(
        &mut self,
        gil: impl Attach,
        torch: &Torch,
        running: &Running,
    ) -> PyResult<()> {
        for &input in &running.known.form.written {
            let id = running.inputs.lives[input as usize];
            let Some(live) = self.executor.storages.live(id) else {
                continue;
            };
            // SAFETY: a tensor among the arguments, which the caller of the op still holds, owns the storage.
            let bytes = unsafe { storage_bytes(torch.boxed, live.imp.address()) };
            if bytes != live.bytes {
                gil.attach(|py| self.check_size(py, id))?;
            }
        }
        Ok(())
    }

    fn keep_known(
        &mut self,
        gil: impl Attach,
        running: &mut Running,
        made: &[TensorId],
        stacked: &Stacked,
    ) -> PyResult<()> {
        let known = &running.known;
        if running.replay != Replay::Allowed || known.outputs.is_empty() {
            return Ok(());
        }
        let context = Context {
            grad: known.grad,
            state: running.state,
            rng: running.rng.take(),
        };
        let viewed = known.roles.viewed.iter();
        let offsets = viewed.map(|&tensor| stacked.offsets[tensor as usize]);
        let lives = &running.inputs.lives;
        self.executor.keep(gil, running.op, lives, || Record {
            numbers: SmallVec::from_slice(&stacked.numbers),
            blank: running.blank.map(|blank| (blank.bytes, blank.device)),
            ..Record::of(
                known.form.clone(),
                offsets.collect(),
                &known.signature,
                context,
            )
        })?;
        self.executor.note_chain(made, running.chain);
        Ok(())
    }

    /// Pins a gradient that autograd is about to leave in a leaf.
    pub(super) fn pin_accumulated(
        &mut self,
        gil: impl Attach,
        torch: &Torch,
        results: &[Value],
    ) -> PyResult<()> {
        if !self.is_accumulating(gil)? {
            return Ok(());
        }
        for value in results {
            // SAFETY: the result is alive, on the stack.
            if let Item::Tensor(tensor) = unsafe { torch.boxed.read(value) } {
                // SAFETY: as above.
                let storage = unsafe { tensor.storage(torch.boxed) };
                match self.executor.storages.find_at(storage) {
                    // The engine will be told of a constant, as if it had been pinned here.
                    Some((id, UNTOLD)) => self.executor.storages.note_made(id, (0, 0)),
                    Some((id, _)) => {
                        gil.attach(|py| self.executor.pin(py, id))?;
                        self.executor.storages.note_kind(id, MemoryKind::Gradient);
                    }
                    None => {}
                }
            }
        }
        Ok(())
    }
}

/// The Python object of a result, by its place in the order in which results are flattened.
///
/// # Safety
/// The results are alive, on the stack of the call that returned.
pub(super) unsafe fn wrap_result<'py>(
    py: Python<'py>,
    torch: &Torch,
    results: &[Value],
    place: u32,
) -> PyResult<Bound<'py, PyAny>> {
    let (mut at, mut found) = (0, None);
    // SAFETY: as the caller promises.
    unsafe {
        for_each_result(torch, results, &mut |value, _| {
            if at == place {
                found = Some(value);
            }
            at += 1;
        });
        match found {
            Some(value) => torch.dispatcher.wrap(py, value),
            None => Ok(py.None().into_bound(py)),
        }
    }
}

/// An op of a known form, as it is announced.
pub(super) fn spec_of<'a>(known: &'a Known, inputs: &'a [TensorId], replay: Replay) -> OpSpec<'a> {
    OpSpec {
        inputs,
        outputs: &known.outputs,
        workspace: known.signature.room(),
        workspace_device: known.signature.workspace_device,
        replay,
    }
}

/// Visits results in the order in which they are flattened: each tensor, or none, of each list.
///
/// # Safety
/// The results are alive, on the stack of the call that returned.
pub(super) unsafe fn for_each_result<'a>(
    torch: &Torch,
    results: &'a [Value],
    visit: &mut dyn FnMut(&'a Value, Item<'a>),
) {
    for value in results {
        // SAFETY: as the caller promises; lists keep their items alive.
        unsafe {
            match torch.boxed.read(value) {
                Item::List(items) => {
                    for value in items {
                        visit(value, torch.boxed.read(value));
                    }
                }
                item => visit(value, item),
            }
        }
    }
}
