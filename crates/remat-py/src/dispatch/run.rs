//! One op under the budget: its inputs are brought back and room is made, it runs, and what it made is taken in.

use std::sync::PoisonError;
use std::time::Instant;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use remat_core::{Bytes, Error, Finished, OpId, OpSpec, Output, Replay, TensorId};

use super::placed::repeatable;
use super::{as_torch_raises, Outcome, State};
use crate::arguments::{walk, Walk};
use crate::core_state::PLACED;
use crate::fastcall::call_one;
use crate::func::{Func, Kind};
use crate::layout::Guard;
use crate::let_go::Yield;
use crate::record::Record;
use crate::signature::{Predicted, Signature, SAMPLES};
use crate::storages::{Buffer, LiveId};

/// Times that an op is run which finds no room in the arena: each time more is evicted before.
const ATTEMPTS: u32 = 8;

impl State {
    pub(super) fn run(
        &mut self,
        py: Python<'_>,
        func: &Func,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Outcome> {
        self.core.current.clear();
        self.core.current.push_str(&func.name);
        let mut walked = walk(&mut self.torch, &mut self.core, func, args, kwargs)?;
        if walked.wrapper {
            return Ok(Outcome::Redispatch);
        }
        let grad: bool = self.grad_enabled.bind(py).call0()?.is_truthy()?;
        walked.signature ^= u64::from(grad).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.write_aliases(&mut walked);
        let pinning = walked.opaque || matches!(func.kind, Kind::Foreign | Kind::Restructure);
        if walked.parameters && grad {
            self.pin_parameters(py, func, args)?;
        }
        if pinning {
            for i in 0..walked.lives.len() {
                self.core.pin_in_place(py, walked.lives[i])?;
                // Pinning may have replayed; the tensor of a storage does not change by it.
            }
        }
        let chain = self.core.chain(&walked.inputs);
        self.core.cut_chains(py, chain)?;
        for i in 0..walked.parts.len() {
            self.core.pin_in_place(py, walked.parts[i])?;
        }
        if func.kind == Kind::Restructure {
            for &id in &walked.lives {
                if let Some(live) = self.core.storages.live(id).filter(|live| live.freed) {
                    self.core.layout.set_guard(py, live.imp, Guard::Down);
                }
            }
        }
        if func.kind == Kind::Foreign {
            let written = walked.written.iter();
            let lives = written.filter_map(|&i| self.core.storages.live(walked.lives[i as usize]));
            let mut writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
            writing.clear();
            writing.extend(lives.map(|live| live.address()));
        }
        let mut signature = match self.knowledge.signatures.remove(&walked.signature) {
            Some(known) => known,
            None => self.predict(py, func, args, kwargs)?,
        };
        let result = self.run_signed(
            py,
            func,
            args,
            kwargs,
            &mut walked,
            &mut signature,
            grad,
            pinning,
        );
        if !func.data_dependent {
            self.knowledge
                .signatures
                .insert(walked.signature, signature);
        }
        if func.kind == Kind::Foreign {
            self.check_foreign(py, func, &walked, result.as_ref().ok())?;
        }
        result.map(Outcome::Done)
    }

    /// A write into memory that torch did not allocate changes every storage over it.
    pub(super) fn write_aliases(&self, walked: &mut Walk) {
        for k in 0..walked.written.len() {
            let written = walked.lives[walked.written[k] as usize];
            for (id, tensor) in self.core.storages.aliases(written) {
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

    pub(super) fn predict(
        &mut self,
        py: Python<'_>,
        func: &Func,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Signature> {
        type Device<'py> = (String, Bound<'py, PyAny>);
        type Prediction<'py> = (Vec<Option<(u64, Device<'py>)>>, u64, u64, Device<'py>, bool);
        let found = self
            .predict
            .bind(py)
            .call1((&func.overload, args, kwargs))?;
        let (outputs, workspace, leaves, device, exact): Prediction<'_> = found.extract()?;
        let mut predicted = Vec::with_capacity(outputs.len());
        for output in outputs {
            predicted.push(match output {
                Some((bytes, (name, device))) => Predicted::Fresh {
                    bytes: Bytes(bytes),
                    pool: self.core.pool(&name, &device)?,
                },
                None => Predicted::Shared,
            });
        }
        let workspace_pool = self.core.pool(&device.0, &device.1)?;
        Ok(Signature {
            outputs: predicted,
            workspace: Bytes(workspace),
            leaves: Bytes(leaves),
            left: false,
            workspace_pool,
            measured: exact,
            samples: 0,
            cost: 0,
        })
    }

    #[allow(clippy::too_many_arguments)]
    pub(super) fn run_signed(
        &mut self,
        py: Python<'_>,
        func: &Func,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
        walked: &mut Walk,
        signature: &mut Signature,
        grad: bool,
        pinning: bool,
    ) -> PyResult<Py<PyAny>> {
        if !walked.stats.is_empty() {
            self.overwrite(py, "remat.update_stats", &walked.stats, 0)?;
        }
        if let Some(filled) = self.filled(py, func, walked)? {
            return self.fill(py, func, args, kwargs, walked, signature, grad, filled);
        }
        let chain = self.core.chain(&walked.inputs);
        // In-place outputs first, then the fresh ones in the order of the results.
        let mut outputs: Vec<Output> =
            Vec::with_capacity(walked.written.len() + signature.outputs.len());
        outputs.extend(
            walked
                .written
                .iter()
                .map(|&of| Output::InPlace { of: of as usize }),
        );
        let mut results: Vec<Option<u32>> = Vec::with_capacity(signature.outputs.len());
        let mut all_tiny = walked.written.is_empty();
        for predicted in &signature.outputs {
            results.push(match *predicted {
                Predicted::Fresh { bytes, pool } => {
                    outputs.push(Output::Fresh { bytes, pool });
                    all_tiny &= bytes.0 <= self.tiny;
                    Some((outputs.len() - 1) as u32)
                }
                Predicted::Shared => None,
            });
        }
        let carried = !grad
            && self
                .core
                .storages
                .any_carried(&walked.lives, &walked.written);
        if grad {
            self.core.storages.note_forward();
        }
        let replay = if pinning || all_tiny || func.blank || carried {
            Replay::Forbidden
        } else {
            Replay::Allowed
        };
        let spec = OpSpec {
            inputs: &walked.inputs,
            outputs: &outputs,
            workspace: signature.room(),
            workspace_pool: signature.workspace_pool,
            replay,
        };
        let mut rng = None;
        let mut attempts = 0;
        let (op, result, cost) = loop {
            let op = self.begin(
                py,
                &OpSpec {
                    workspace: signature.room(),
                    ..spec
                },
            )?;
            if func.random {
                rng = Some(self.draw_from(py, args, kwargs)?);
            }
            let error = match self.call(py, func, args, kwargs, signature) {
                Ok((result, cost)) => break (op, result, cost),
                Err(error) => error,
            };
            self.core.cancel(py, op)?;
            attempts += 1;
            if !self.learn_from(py, &error, signature) {
                return Err(error);
            }
            if attempts == ATTEMPTS || !repeatable(func, walked) {
                return Err(self.core.no_block(py));
            }
        };
        let dense = self.finish(py, op, walked, signature, &outputs, &results, &result, cost)?;
        if replay == Replay::Allowed && !dense {
            for tensor in self.core.engine.outputs(op).to_vec() {
                let sid = self.core.engine.storage(tensor);
                if let Buffer::Live(id) = *self.core.storages.buffer(sid) {
                    self.core.pin(py, id)?;
                }
            }
        } else if replay == Replay::Allowed && !outputs.is_empty() {
            let record = Record {
                results,
                ..Record::of(func, walked, signature, grad, rng)
            };
            self.core.keep(py, op, record, &walked.lives)?;
            let made = self.core.engine.outputs(op).to_vec();
            self.core.note_chain(&made, chain);
        }
        if func.blank {
            if let Ok(storage) = call_one(&self.torch.untyped_storage, &result) {
                let id = self.core.storages.find(&storage);
                if let Some(live) = id.and_then(|id| self.core.storages.live_mut(id)) {
                    live.blank = true;
                }
            }
        }
        self.core.collect();
        Ok(result.unbind())
    }

    /// Announces an op and performs what must come first.
    pub(super) fn begin(&mut self, py: Python<'_>, spec: &OpSpec<'_>) -> PyResult<OpId> {
        match self.core.arena {
            Some(_) => self.begin_placed(py, spec),
            None => self.begin_counted(py, spec),
        }
    }

    /// As [`begin`](Self::begin), with no eye to addresses.
    pub(super) fn begin_counted(&mut self, py: Python<'_>, spec: &OpSpec<'_>) -> PyResult<OpId> {
        let severs = spec.outputs.iter().any(|output| {
            let Output::InPlace { of } = output else {
                return false;
            };
            let engine = &self.core.engine;
            engine.is_pinned(engine.storage(spec.inputs[*of]))
        });
        self.core.let_go_if_many(py)?;
        let started = Instant::now();
        let mut begun = self.core.engine.begin(spec);
        if matches!(begun, Err(Error::Budget { .. })) && self.core.let_go(py, Yield::Some)? {
            begun = self.core.engine.begin(spec);
        }
        let op = begun.map_err(|e| self.core.refusal(py, &e))?;
        if !self.core.engine.steps().is_empty() {
            self.core.decide_ns += started.elapsed().as_nanos() as u64;
            self.core.perform(py)?;
        }
        if severs {
            self.core.hold_all_pinned(py)?;
        }
        self.core.running = Some(op);
        Ok(op)
    }

    /// The state that a random op draws from.
    pub(super) fn draw_from(
        &mut self,
        py: Python<'_>,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<PyAny>> {
        let rng_state = self.rng_state.clone_ref(py);
        let state = self.lending(py, || rng_state.bind(py).call1((args, kwargs)))?;
        Ok(state.unbind())
    }

    /// Runs the op; the first time measured, a few more times timed.
    pub(super) fn call<'py>(
        &mut self,
        py: Python<'py>,
        func: &Func,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
        signature: &mut Signature,
    ) -> PyResult<(Bound<'py, PyAny>, u64)> {
        let called = self.call_within(py, func, args, kwargs, signature);
        self.core.expect_no_more();
        called
    }

    fn call_within<'py>(
        &mut self,
        py: Python<'py>,
        func: &Func,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
        signature: &mut Signature,
    ) -> PyResult<(Bound<'py, PyAny>, u64)> {
        let placed = signature.workspace_pool == PLACED && !signature.measured;
        if let Some(before) = placed.then(|| self.look()).flatten() {
            let started = Instant::now();
            self.before = Some(before);
            let result = self.lending(py, || func.call.bind(py).call(args, kwargs))?;
            self.before = None;
            let cost = started.elapsed().as_nanos() as u64;
            // Saving and restoring a generator's state takes memory too.
            let drawn = if func.random { self.rng_bytes } else { 0 };
            signature.workspace = Bytes(self.workspace_since(&before).max(drawn));
            signature.measured = true;
            return Ok((result, cost));
        }
        if !signature.measured {
            let started = Instant::now();
            let (result, workspace): (Bound<'py, PyAny>, Option<u64>) = self
                .measured_call
                .bind(py)
                .call1((&func.call, args, kwargs))
                .map_err(|e| as_torch_raises(self.own_frames_dropped.bind(py), e))?
                .extract()?;
            if let Some(workspace) = workspace {
                // Saving and restoring a generator's state takes memory too.
                let drawn = if func.random { self.rng_bytes } else { 0 };
                signature.workspace = Bytes(workspace + drawn);
                signature.measured = true;
            }
            return Ok((result, started.elapsed().as_nanos() as u64));
        }
        if signature.samples >= SAMPLES {
            let result = self.lending(py, || func.call.bind(py).call(args, kwargs))?;
            return Ok((result, signature.cost));
        }
        let sync = |s: &State| match &s.synchronize {
            Some(f) => f.bind(py).call0().map(|_| ()),
            None => Ok(()),
        };
        sync(self)?;
        let started = Instant::now();
        let result = self.lending(py, || func.call.bind(py).call(args, kwargs))?;
        sync(self)?;
        signature.sample(started.elapsed().as_nanos() as u64);
        Ok((result, signature.cost))
    }

    /// Tells the engine what an op made, and takes it in. Returns whether every result has a storage of its own.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn finish(
        &mut self,
        py: Python<'_>,
        op: OpId,
        walked: &Walk,
        signature: &mut Signature,
        outputs: &[Output],
        results: &[Option<u32>],
        result: &Bound<'_, PyAny>,
        cost: u64,
    ) -> PyResult<bool> {
        let made: Vec<TensorId> = self.core.engine.outputs(op).to_vec();
        let flat = self.flatten(py, result, results.len())?;
        // Sizes first: the engine must know them before storages are looked up again.
        let mut bytes: Vec<Bytes> = outputs
            .iter()
            .map(|o| match o {
                Output::Fresh { bytes, .. } => *bytes,
                _ => Bytes(0),
            })
            .collect();
        let mut fresh: Vec<(u32, Bound<'_, PyAny>)> = Vec::with_capacity(flat.len());
        let mut strangers: Vec<Bound<'_, PyAny>> = Vec::new();
        let mut left = 0;
        let mut shared: Vec<LiveId> = Vec::new();
        let mut dense = true;
        for (i, tensor) in flat.iter().enumerate() {
            let Some(tensor) = tensor else { continue };
            let Ok(storage) = call_one(&self.torch.untyped_storage, tensor) else {
                dense = false;
                left += self.take_parts(tensor, &mut strangers, &mut shared)?;
                continue;
            };
            let seen = self.core.storages.find(&storage).is_some()
                || fresh.iter().any(|(_, s)| s.is(&storage));
            if seen {
                continue;
            }
            match results.get(i).copied().flatten() {
                Some(k) => {
                    let size = Bytes(
                        storage
                            .call_method0(pyo3::intern!(py, "nbytes"))?
                            .extract()?,
                    );
                    bytes[k as usize] = size;
                    signature.learn(i, size);
                    fresh.push((k, storage));
                }
                None => {
                    let size = Bytes(
                        storage
                            .call_method0(pyo3::intern!(py, "nbytes"))?
                            .extract()?,
                    );
                    if let Some(pool) = self.core.device_of(&storage)? {
                        signature.discover(i, size, pool);
                    }
                    strangers.push(storage);
                }
            }
        }
        for (k, output) in outputs.iter().enumerate() {
            // Announced and not returned: nothing is there.
            if matches!(output, Output::Fresh { .. }) && !fresh.iter().any(|(f, _)| *f == k as u32)
            {
                bytes[k] = Bytes(0);
            }
        }
        if let Some(tracing) = &mut self.core.tracing {
            tracing.op(
                &self.core.current,
                &walked.inputs,
                outputs,
                &made,
                signature.room().0,
                signature.workspace_pool,
                cost,
                true,
                Some(&bytes),
            )?;
        }
        let finished = self.core.engine.finish(
            op,
            &Finished {
                cost: remat_core::Cost(cost),
                bytes: Some(&bytes),
            },
        );
        self.core.perform(py)?;
        for (k, storage) in &fresh {
            let pool = match outputs[*k as usize] {
                Output::Fresh { pool, .. } => pool,
                _ => self.core.budget_pool,
            };
            let size = bytes[*k as usize].0;
            let tensor = made[*k as usize];
            let sid = self.core.engine.storage(tensor);
            self.core.ledger.add(pool, size);
            self.core
                .storages
                .insert(storage, tensor, sid, size, pool)?;
        }
        self.core.ledger.spike(
            signature.workspace_pool,
            if signature.measured {
                signature.workspace.0
            } else {
                0
            },
        );
        self.core.check_outputs(py, op);
        for (k, &input) in walked.written.iter().enumerate() {
            self.supersede(py, walked.lives[input as usize], made[k])?;
        }
        for (k, output) in outputs.iter().enumerate() {
            if matches!(output, Output::Fresh { .. }) && !fresh.iter().any(|(f, _)| *f == k as u32)
            {
                self.core.release(py, made[k])?;
            }
        }
        finished.map_err(|e| self.core.refusal(py, &e))?;
        for storage in strangers {
            crate::arguments::Registry::resolve(&mut self.core, &storage)?;
        }
        for id in shared {
            self.core.pin_in_place(py, id)?;
        }
        for &input in &walked.written {
            left += self
                .check_size(py, walked.lives[input as usize])?
                .unwrap_or(0);
        }
        signature.leave(left);
        Ok(dense)
    }
}
