//! Calls of a known form: all that an op needs is known before it runs, and no Python is entered for it.
//!
//! A call takes this way once its form settled: its workspace is measured and its cost frozen. What differs from the
//! form after all (a result of another size, a storage of a view's own) is taken in as on the way through Python.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyList;
use remat_core::{Bytes, DeviceId, OpId, OpSpec, Output, Replay, TensorId};

use super::costs::Completed;
use super::forms::{Candidate, Known};
use super::op::{sizes_of, Announced, Prepared, Ran};
use super::state::State;
use crate::call::arguments::{Class, Registry, Resolved, Walk};
use crate::call::form::Form;
use crate::call::func::{Func, Kind};
use crate::call::global_state::StateNumber;
use crate::call::record::{Context, GradMode, Record};
use crate::call::signature::SAMPLES;
use crate::call::stacked::Stacked;
use crate::call::template::Dispatched;
use crate::call::view::Arg;
use crate::ffi::boxed::{storage_bytes, Item, Value};
use crate::ffi::dispatcher::Torch;
use crate::ffi::fastcall::call_one;
use crate::ffi::layout::Impl;
use crate::ffi::shell;
use crate::ffi::watch::Watched;
use crate::tracking::storages::{Contents, Kept, LiveId};

/// Forms that are known at once; a program whose shapes never repeat must not grow for ever.
const LIMIT: usize = 100_000;

/// An op of a known form between its announcement and its results.
pub(super) struct Running {
    known: Arc<Known>,
    pub(super) op: OpId,
    inputs: Vec<TensorId>,
    lives: Vec<LiveId>,
    /// Keeps the arguments' storages until the op is recorded. Torch drops its own references once the kernel ran.
    _kept: Vec<Kept>,
    chain: u32,
    state: StateNumber,
    replay: Replay,
}

/// The storages of results, as they lie on the stack.
#[derive(Default)]
struct Fresh<'a> {
    sizes: Vec<Bytes>,
    /// Output, tensor, storage.
    storages: Vec<(u32, &'a Value, usize)>,
    /// Whether all is as the form says.
    usual: bool,
}

impl State {
    /// Makes the form of a call known after it ran through Python, if later calls can do without.
    pub(super) fn make_known(
        &mut self,
        func: &Arc<Func>,
        prepared: &mut Prepared,
        candidate: &Candidate,
    ) -> Option<Arc<Form>> {
        let Prepared {
            walked, signature, ..
        } = prepared;
        let settled = signature.measured
            && signature.left
            && signature.leaves == Bytes(0)
            && signature.samples >= SAMPLES;
        let plain = matches!(func.kind, Kind::Plain | Kind::Read)
            && !(func.random || func.data_dependent || func.blank || func.pins_results)
            && func.stats.is_none();
        let simple = !walked.opaque && walked.parts.is_empty() && walked.stats.is_empty();
        if !(settled && plain && simple) || self.executor.arena.is_some() {
            return None;
        }
        // Torch hands a number that it wrapped in a tensor to Python as a number: the form would hold its value.
        if walked.views.len() != candidate.tensors || !place_numbers(walked, candidate) {
            return None;
        }
        let Announced { outputs, results } = Announced::of(walked, signature);
        let form = Arc::new(Form::of(func, walked, results));
        if self.known.len() >= LIMIT {
            self.known.clear();
        }
        let known = Known {
            func: func.clone(),
            form: form.clone(),
            outputs,
            signature: signature.clone(),
            grad: prepared.grad,
        };
        self.known.insert(candidate.key, Arc::new(known));
        Some(form)
    }

    /// Announces a call of a known form; `None` if it has to go through Python.
    ///
    /// # Safety
    /// The call is in progress, and `stacked` was passed over its arguments.
    pub(super) unsafe fn begin_known(
        &mut self,
        py: Python<'_>,
        torch: &Torch,
        call: &Dispatched<'_>,
        stacked: &Stacked,
    ) -> PyResult<Option<Running>> {
        if self.executor.storages.has_deaths() {
            self.executor.drain_deaths(py)?;
        }
        let Some(known) = self.known.get(&stacked.key).cloned() else {
            return Ok(None);
        };
        // SAFETY: as the caller promises.
        let Some((inputs, lives)) = (unsafe { self.inputs_of(py, torch, stacked)? }) else {
            return Ok(None);
        };
        let mut kept = Vec::with_capacity(lives.len());
        for &id in &lives {
            let live = self.executor.storages.live(id);
            let Some(storage) = live.map(|live| live.keep(py)).transpose()?.flatten() else {
                return Ok(None);
            };
            kept.push(storage);
        }
        let executor = &self.executor;
        let usual = lives.iter().enumerate().all(|(at, &id)| {
            let written = known.form.written.contains(&(at as u32));
            let live = executor.storages.live(id);
            live.is_some_and(|l| !l.blank && !(written && (l.outside.is_some() || l.freed)))
        });
        if !usual || executor.arena.is_some() {
            return Ok(None);
        }
        let state = self.executor.global_state.current(py)?;
        self.ops += 1;
        self.set_current(&known.func.name);
        if known.grad == GradMode::On {
            // SAFETY: as the caller promises.
            unsafe { self.pin_parameters_of(py, torch, stacked, &lives)? };
        }
        let chain = self.executor.chain(&inputs);
        self.executor.cut_chains(py, chain)?;
        let replay = self.replay_of(&known.outputs, known.grad, &lives, &known.form.written);
        if known.grad == GradMode::On {
            self.executor.storages.note_forward();
        }
        let op = self.begin_counted(
            py,
            &OpSpec {
                inputs: &inputs,
                outputs: &known.outputs,
                workspace: known.signature.room(),
                workspace_device: known.signature.workspace_device,
                replay,
            },
        )?;
        let made = known.form.template.get().is_some();
        if !made && replay == Replay::Allowed && self.replays_natively(&known) {
            // SAFETY: as the caller promises.
            unsafe { known.form.make_template(py, torch, call, stacked) };
        }
        Ok(Some(Running {
            known,
            op,
            inputs,
            lives,
            _kept: kept,
            chain,
            state,
            replay,
        }))
    }

    /// Whether replays of a form may do without Python: all is in main memory, and the probe found what they need.
    fn replays_natively(&self, known: &Known) -> bool {
        let device = known.signature.workspace_device;
        let here = |output: &Output| match *output {
            Output::Fresh { device: other, .. } => other == device,
            _ => true,
        };
        let name = self.executor.devices.get(usize::from(device.0));
        shell::are_rehearsed()
            && name.is_some_and(|device| device.name == "cpu")
            && known.outputs.iter().all(here)
    }

    /// Pins the parameters among the arguments of a call that autograd records. A storage is asked once.
    ///
    /// # Safety
    /// As for [`begin_known`](Self::begin_known).
    unsafe fn pin_parameters_of(
        &mut self,
        py: Python<'_>,
        torch: &Torch,
        stacked: &Stacked,
        lives: &[LiveId],
    ) -> PyResult<()> {
        for (&id, &tensor) in lives.iter().zip(&stacked.tensors) {
            let live = self.executor.storages.live_mut(id);
            if live.is_none_or(|live| std::mem::replace(&mut live.classified, true)) {
                continue;
            }
            // SAFETY: the caller promises that the value is alive.
            let object = unsafe { torch.dispatcher.wrap(py, &*tensor)? };
            if self.torch.class_of(&object)? == Class::Parameter {
                self.executor.pin(py, id)?;
            }
        }
        Ok(())
    }

    /// The tensors and live storages of a call's arguments. Storages that are new become constants.
    unsafe fn inputs_of(
        &mut self,
        py: Python<'_>,
        torch: &Torch,
        stacked: &Stacked,
    ) -> PyResult<Option<(Vec<TensorId>, Vec<LiveId>)>> {
        let count = stacked.storages.len();
        let (mut inputs, mut lives) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for (&storage, &tensor) in stacked.storages.iter().zip(&stacked.tensors) {
            let (id, tensor) = match self.executor.storages.find_at(storage) {
                Some(found) => found,
                None => {
                    // SAFETY: the caller promises that the value is alive.
                    let tensor = unsafe { torch.dispatcher.wrap(py, &*tensor)? };
                    let object = call_one(&self.torch.untyped_storage, &tensor)?;
                    match self.executor.resolve(&object)? {
                        Resolved::Live(id, tensor) => (id, tensor),
                        Resolved::Hollow | Resolved::Elsewhere => return Ok(None),
                    }
                }
            };
            if inputs.contains(&tensor) {
                return Ok(None);
            }
            inputs.push(tensor);
            lives.push(id);
        }
        Ok(Some((inputs, lives)))
    }

    /// Takes in the results of a call of a known form.
    ///
    /// # Safety
    /// The results are alive, on the stack of the call that returned.
    pub(super) unsafe fn finish_known(
        &mut self,
        py: Python<'_>,
        torch: &Torch,
        running: Running,
        results: &[Value],
        stacked: &Stacked,
    ) -> PyResult<()> {
        // SAFETY: as the caller promises.
        let fresh = unsafe { self.fresh_results(py, torch, &running.known, results) };
        if !fresh.usual {
            self.known.remove(&stacked.key);
            // SAFETY: as the caller promises.
            return unsafe { self.finish_unusual(py, torch, running, results) };
        }
        let made = self.executor.engine.outputs(running.op).to_vec();
        let signature = &running.known.signature;
        let finished = self.tell_engine(&Completed {
            op: running.op,
            inputs: &running.inputs,
            outputs: &running.known.outputs,
            made: &made,
            signature,
            cost: signature.cost,
            sizes: Some(&fresh.sizes),
        })?;
        self.executor.perform(py)?;
        for &(k, value, storage) in &fresh.storages {
            let Output::Fresh { device, .. } = running.known.outputs[k as usize] else {
                continue;
            };
            let contents = self.contents(made[k as usize], fresh.sizes[k as usize].0, device);
            // SAFETY: as the caller promises: the result, on the stack, owns the storage.
            if let Some(watched) = unsafe { Watched::new(storage) } {
                self.executor.ledger.add(device, contents.bytes);
                self.executor.storages.insert_watched(watched, contents);
                continue;
            }
            // SAFETY: as the caller promises.
            let tensor = unsafe { torch.dispatcher.wrap(py, value)? };
            let object = call_one(&self.torch.untyped_storage, &tensor)?;
            self.executor.ledger.add(device, contents.bytes);
            let imp = Impl::at(storage);
            self.executor.storages.insert(&object, imp, contents)?;
        }
        let (device, workspace) = (signature.workspace_device, signature.workspace.0);
        self.executor.ledger.spike(device, workspace);
        for (k, &input) in running.known.form.written.iter().enumerate() {
            self.supersede(py, running.lives[input as usize], made[k])?;
        }
        finished.map_err(|e| self.executor.refusal(py, &e))?;
        self.check_written(py, torch, &running)?;
        self.keep_known(py, &running, &made, stacked)?;
        if running.known.func.accumulates {
            self.pin_accumulated(py, torch, results)?;
        }
        self.executor.collect();
        drop(running); // the arguments' storages are held up to here
        Ok(())
    }

    fn contents(&self, tensor: TensorId, bytes: u64, device: DeviceId) -> Contents {
        Contents {
            tensor,
            sid: self.executor.storage_of(tensor),
            bytes,
            device,
        }
    }

    /// Compares the results with the form.
    unsafe fn fresh_results<'a>(
        &self,
        py: Python<'_>,
        torch: &Torch,
        known: &Known,
        results: &'a [Value],
    ) -> Fresh<'a> {
        let boxed = torch.boxed;
        let mut fresh = Fresh {
            sizes: sizes_of(&known.outputs),
            storages: Vec::with_capacity(known.form.results.len()),
            usual: true,
        };
        let mut at = 0;
        // SAFETY: the caller promises that the results are alive.
        unsafe {
            for_each_result(torch, results, &mut |value, item| {
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
                let seen = live.is_some_and(|live| live.is_alive(py))
                    || fresh.storages.iter().any(|&(_, _, known)| known == storage);
                match expected {
                    _ if seen => fresh.usual &= expected.is_none(),
                    Some(k) => {
                        fresh.sizes[k as usize] = Bytes(storage_bytes(boxed, storage));
                        fresh.storages.push((k, value, storage));
                    }
                    None => fresh.usual = false,
                }
            });
        }
        let expected = known.form.results.iter().flatten().count();
        fresh.usual &= fresh.storages.len() == expected;
        fresh
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
            outputs: known.outputs.clone(),
            results: known.form.results.clone(),
        };
        let mut prepared = Prepared {
            walked: Walk {
                inputs: running.inputs,
                lives: running.lives,
                written: known.form.written.clone(),
                ..Walk::default()
            },
            signature: known.signature.clone(),
            grad: known.grad,
            state: running.state,
            replay: running.replay,
            unseen: None,
        };
        let ran = Ran {
            op: running.op,
            made: self.executor.engine.outputs(running.op).to_vec(),
            result: list.into_any(),
            cost: known.signature.cost,
            rng: None,
        };
        self.finish(&mut prepared, &mut announced, &ran)?;
        // No record: what a replay of this call would return is not known.
        self.pin_outputs(py, running.op)
    }

    /// Takes in anew what an op resized that it declared to write.
    fn check_written(&mut self, py: Python<'_>, torch: &Torch, running: &Running) -> PyResult<()> {
        for &input in &running.known.form.written {
            let id = running.lives[input as usize];
            let Some(live) = self.executor.storages.live(id) else {
                continue;
            };
            // SAFETY: a tensor among the arguments, which the caller of the op still holds, owns the storage.
            let bytes = unsafe { storage_bytes(torch.boxed, live.imp.address()) };
            if bytes != live.bytes {
                self.check_size(py, id)?;
            }
        }
        Ok(())
    }

    fn keep_known(
        &mut self,
        py: Python<'_>,
        running: &Running,
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
            rng: None,
        };
        let (form, offsets) = (known.form.clone(), stacked.offsets.clone());
        let record = Record {
            numbers: stacked.numbers.clone(),
            ..Record::of(form, offsets, &known.signature, context)
        };
        self.executor.keep(py, running.op, record, &running.lives)?;
        self.executor.note_chain(made, running.chain);
        Ok(())
    }

    /// Pins a gradient that autograd is about to leave in a leaf.
    pub(super) fn pin_accumulated(
        &mut self,
        py: Python<'_>,
        torch: &Torch,
        results: &[Value],
    ) -> PyResult<()> {
        let accumulating = self.executor.internals.accumulating.bind(py);
        if !accumulating.call0()?.is_truthy()? {
            return Ok(());
        }
        for value in results {
            // SAFETY: the result is alive, on the stack.
            if let Item::Tensor(tensor) = unsafe { torch.boxed.read(value) } {
                // SAFETY: as above.
                let storage = unsafe { tensor.storage(torch.boxed) };
                if let Some((id, _)) = self.executor.storages.find_at(storage) {
                    self.executor.pin(py, id)?;
                }
            }
        }
        Ok(())
    }
}

/// Replaces arguments whose values the key leaves out by the places of their numbers. Returns whether all are there;
/// nothing is replaced otherwise.
fn place_numbers(walked: &mut Walk, candidate: &Candidate) -> bool {
    let place = |position: u32| -> Option<Place> {
        let position = position as usize;
        let (place, arg) = if position < walked.args.len() {
            (Place::Positional(position), walked.args.get(position)?)
        } else {
            let name = candidate.arity.names.get(position)?;
            let at = walked.names.iter().position(|known| known == name)?;
            (Place::ByName(at), &walked.kwargs.get(at)?.1)
        };
        matches!(arg, Arg::Object(_)).then_some(place)
    };
    let places: Option<Vec<Place>> = candidate.positions.iter().map(|&at| place(at)).collect();
    let Some(places) = places else { return false };
    for (number, place) in (0..).zip(places) {
        match place {
            Place::Positional(at) => walked.args[at] = Arg::Number(number),
            Place::ByName(at) => walked.kwargs[at].1 = Arg::Number(number),
        }
    }
    true
}

/// The place of an argument among those that Python is called with.
enum Place {
    Positional(usize),
    ByName(usize),
}

/// Visits results in the order in which they are flattened: each tensor, or none, of each list.
///
/// # Safety
/// The results are alive, on the stack of the call that returned.
unsafe fn for_each_result<'a>(
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
