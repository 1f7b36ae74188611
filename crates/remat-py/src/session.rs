//! The dispatch mode: every torch op of the program passes through [`Session::__torch_dispatch__`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Instant;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use remat_core::{
    Bytes, Config, Counters, Engine, Error, Finished, OpId, OpSpec, Output, PoolId, Replay,
    TensorId, ThrashLimit,
};

use crate::arguments::{walk, Class, Torch, Walk};
use crate::core_state::{CoreState, Follow, Seam};
use crate::fastcall::call_one;
use crate::func::{Func, Kind};
use crate::knowledge::Knowledge;
use crate::layout::{Guard, Layout};
use crate::let_go::Yield;
use crate::record::{Record, BLANK};
use crate::signature::{Predicted, Signature, SAMPLES};
use crate::storages::{Buffer, LiveId};
use crate::tracing::Tracing;

/// Everything a session owns, behind one lock.
struct State {
    core: CoreState,
    torch: Torch,
    knowledge: Knowledge,
    describe: Py<PyAny>,
    predict: Py<PyAny>,
    measured_call: Py<PyAny>,
    redispatch: Py<PyAny>,
    own_frames_dropped: Py<PyAny>,
    rng_state: Py<PyAny>,
    grad_enabled: Py<PyAny>,
    accumulating: Py<PyAny>,
    synchronize: Option<Py<PyAny>>,
    tiny: u64,
    rng_bytes: u64,
    /// Storages that the running op declares to write, by address.
    writing: Arc<Mutex<Vec<usize>>>,
    ops: u64,
    started: Instant,
    counters_at_end: Option<Counters>,
}

/// A budget in force: a torch dispatch mode whose decisions the engine makes.
#[pyclass(frozen, subclass, module = "remat._native")]
pub struct Session {
    state: Mutex<State>,
    /// Thread that holds the lock, so that it recognises its own calls from within an op.
    owner: AtomicU64,
    /// As in the state, to be read from within an op.
    writing: Arc<Mutex<Vec<usize>>>,
}

fn thread_id() -> u64 {
    thread_local!(static ID: u64 = {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        NEXT.fetch_add(1, Ordering::Relaxed)
    });
    ID.with(|id| *id)
}

struct Held<'a> {
    state: MutexGuard<'a, State>,
    owner: &'a AtomicU64,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.owner.store(0, Ordering::Release);
    }
}

impl Session {
    /// The state, unless this very thread holds it already (an op that calls back into torch).
    fn enter(&self, py: Python<'_>) -> Option<Held<'_>> {
        let me = thread_id();
        if self.owner.load(Ordering::Acquire) == me {
            return None;
        }
        let state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(p)) => p.into_inner(),
            // The thread that holds the lock may need the GIL to finish: wait without it.
            Err(TryLockError::WouldBlock) => {
                py.detach(|| drop(self.state.lock().unwrap_or_else(PoisonError::into_inner)));
                return self.enter(py);
            }
        };
        self.owner.store(me, Ordering::Release);
        Some(Held {
            state,
            owner: &self.owner,
        })
    }
}

/// Part of a budget kept for what torch allocates where no op is dispatched (values from Python lists, generator
/// states, small buffers of its own): those are seen only when an op first meets them.
pub(crate) fn slack(budget: u64) -> u64 {
    (budget / 64).clamp(16 << 10, 1 << 20).min(budget / 8)
}

/// The error of an op, without the Python frames that led from the session to the op.
fn as_torch_raises(dropped: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
    match dropped.call1((error.into_value(dropped.py()),)) {
        Ok(error) => PyErr::from_value(error),
        Err(error) => error,
    }
}

/// `remat.RematError` with a message.
fn remat_error(py: Python<'_>, message: &str) -> PyErr {
    let class = py
        .import("remat._errors")
        .and_then(|module| module.getattr("RematError"));
    match class.and_then(|class| class.call1((message,))) {
        Ok(error) => PyErr::from_value(error),
        Err(error) => error,
    }
}

enum Outcome {
    Done(Py<PyAny>),
    /// To be run by the caller once the lock is free, with the mode active again.
    Redispatch,
}

#[pymethods]
impl Session {
    /// `budgets` is a list of (device name, device, bytes or None); the first is the one reported.
    #[new]
    #[pyo3(signature = (seam, layout, budgets, policy, seed, thrash, trace, follow))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        seam: &Bound<'_, PyAny>,
        layout: (usize, usize),
        budgets: Vec<(String, Bound<'_, PyAny>, Option<u64>)>,
        policy: &str,
        seed: u64,
        thrash: Option<f64>,
        trace: Option<std::path::PathBuf>,
        follow: bool,
    ) -> PyResult<Session> {
        let py = seam.py();
        let policy = policy.parse().map_err(|e: remat_core::UnknownPolicy| {
            pyo3::exceptions::PyValueError::new_err(e.to_string())
        })?;
        let get = |name: &str| -> PyResult<Py<PyAny>> { Ok(seam.getattr(name)?.unbind()) };
        let engine = Engine::new(Config {
            budgets: budgets
                .iter()
                .map(|(_, _, b)| b.map(|b| Bytes(b - slack(b))))
                .collect(),
            policy,
            thrash: thrash.map_or(ThrashLimit::Never, ThrashLimit::Ratio),
            seed,
            ..Config::default()
        });
        let tracing = match trace {
            Some(path) => Some(Tracing::create(
                &path,
                &budgets.iter().map(|b| b.0.clone()).collect::<Vec<_>>(),
            )?),
            None => None,
        };
        let parts = Seam {
            view: get("view")?,
            empty_storage: get("empty_storage")?,
            blank_storage: get("blank_storage")?,
            device_of: get("device_of")?,
            replay_random: get("replay_random")?,
            budget_error: get("budget_error")?,
            flatten: get("flatten")?,
            use_count: get("use_count")?,
        };
        let layout = Layout {
            data_ptr: layout.0,
            guard: layout.1,
        };
        let base = seam.getattr("TensorBase")?;
        let method = |name: &str| -> PyResult<Py<PyAny>> { Ok(base.getattr(name)?.unbind()) };
        let mut core = CoreState::new(
            py,
            engine,
            layout,
            parts,
            method("untyped_storage")?,
            get("set_grad_mode")?,
            tracing,
        )?;
        for (name, device, _) in &budgets {
            core.pool(name, device)?;
        }
        for (i, (_, _, bytes)) in budgets.iter().enumerate() {
            core.set_given(PoolId(i as u8), *bytes);
        }
        core.unbounded = budgets.iter().all(|b| b.2.is_none());
        core.follow = if follow {
            Follow::Accelerator
        } else {
            Follow::Fixed
        };
        let smallest = budgets.iter().filter_map(|b| b.2).min().unwrap_or(0);
        let torch = Torch {
            untyped_storage: method("untyped_storage")?,
            part_storages: get("part_storages")?,
            stride: method("stride")?,
            storage_offset: method("storage_offset")?,
            is_conj: method("is_conj")?,
            is_neg: method("is_neg")?,
            classify: get("classify")?,
            classes: Default::default(),
            complex: Default::default(),
            any_complex: true,
        };
        let knowledge = Knowledge::take(&mut core.pools);
        let writing = Arc::new(Mutex::new(Vec::new()));
        let state = State {
            core,
            torch,
            knowledge,
            describe: get("describe")?,
            predict: get("predict")?,
            measured_call: get("measured_call")?,
            redispatch: get("redispatch")?,
            own_frames_dropped: get("own_frames_dropped")?,
            rng_state: get("rng_state")?,
            grad_enabled: get("grad_enabled")?,
            accumulating: get("accumulating")?,
            synchronize: {
                let f = seam.call_method1("synchronizer", (&budgets[0].0,))?;
                (!f.is_none()).then(|| f.unbind())
            },
            // DTR's prototype skips small storages; ours are pinned, so that a kept loss value does not keep
            // a step's lineage. A millionth of the budget each.
            tiny: (smallest >> 20).min(4096),
            rng_bytes: seam.getattr("RNG_BYTES")?.extract()?,
            writing: writing.clone(),
            ops: 0,
            started: Instant::now(),
            counters_at_end: None,
        };
        Ok(Session {
            state: Mutex::new(state),
            owner: AtomicU64::new(0),
            writing,
        })
    }

    /// Called by torch for every op below autograd.
    #[pyo3(signature = (func, _types, args, kwargs=None))]
    fn __torch_dispatch__(
        slf: &Bound<'_, Self>,
        func: &Bound<'_, PyAny>,
        _types: &Bound<'_, PyAny>,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        let (redispatch, dropped) = match slf.get().enter(py) {
            None => return Ok(func.call(args, kwargs)?.unbind()),
            Some(mut held) => {
                let outcome = held.state.dispatch(py, func, args, kwargs)?;
                match outcome {
                    Outcome::Done(result) => return Ok(result),
                    Outcome::Redispatch => (
                        held.state.redispatch.clone_ref(py),
                        held.state.own_frames_dropped.clone_ref(py),
                    ),
                }
            }
        };
        match redispatch.bind(py).call1((slf, func, args, kwargs)) {
            Ok(result) => Ok(result.unbind()),
            Err(e) => Err(as_torch_raises(dropped.bind(py), e)),
        }
    }

    /// Registers a storage that exists already (parameters, data) and counts its bytes.
    fn adopt(&self, storage: &Bound<'_, PyAny>) -> PyResult<()> {
        let Some(mut held) = self.enter(storage.py()) else {
            return Ok(());
        };
        let core = &mut held.state.core;
        core.current = "adopting tensors that exist already".into();
        core.drain_deaths(storage.py())?;
        crate::arguments::Registry::resolve(core, storage).map(|_| ())
    }

    /// Makes room for a storage of so many bytes on the device of `like`, which is about to be made without an op.
    fn make_room(&self, like: &Bound<'_, PyAny>, bytes: u64) -> PyResult<()> {
        let py = like.py();
        let Some(mut held) = self.enter(py) else {
            return Ok(());
        };
        let core = &mut held.state.core;
        core.current = "copying a storage".into();
        core.drain_deaths(py)?;
        let Some(pool) = core.device_of(like)? else {
            return Ok(());
        };
        core.make_room(py, bytes, pool)
    }

    /// Makes a storage resident for good: its bytes are about to be used in a way that torch does not tell us of.
    fn expose(&self, storage: &Bound<'_, PyAny>) -> PyResult<()> {
        let Some(mut held) = self.enter(storage.py()) else {
            return Ok(());
        };
        let core = &mut held.state.core;
        core.current = "sharing a tensor's memory".into();
        core.drain_deaths(storage.py())?;
        match core.storages.find(storage) {
            Some(id) => core.pin(storage.py(), id),
            None => Ok(()),
        }
    }

    /// A storage is about to be resized by a call that torch does not dispatch: what was computed from its bytes is
    /// made independent of them. Returns whether [`after_resize`](Self::after_resize) is to be called.
    ///
    /// Within an op this can be done only for what the op declares to write; for other storages of the session it
    /// raises, before anything is lost.
    fn before_resize(&self, storage: &Bound<'_, PyAny>, bytes: u64, known: bool) -> PyResult<bool> {
        let py = storage.py();
        let Some(mut held) = self.enter(py) else {
            let writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
            if known && !writing.contains(&(storage.as_ptr() as usize)) {
                return Err(remat_error(
                    py,
                    "an op resizes the storage of a tensor that it does not declare to write: \
                     name the argument in mutates_args, or resize it outside the op",
                ));
            }
            return Ok(false);
        };
        held.state.before_resize(storage, bytes)
    }

    /// A storage was resized: it is taken in anew.
    fn after_resize(&self, storage: &Bound<'_, PyAny>) -> PyResult<()> {
        let Some(mut held) = self.enter(storage.py()) else {
            return Ok(());
        };
        match held.state.core.storages.find(storage) {
            Some(id) => held.state.check_size(storage.py(), id).map(|_| ()),
            None => Ok(()),
        }
    }

    /// Makes every live storage resident and usable, and ends the session's decisions.
    fn restore(&self, py: Python<'_>) -> PyResult<()> {
        let Some(mut held) = self.enter(py) else {
            return Ok(());
        };
        held.state.restore(py)
    }

    /// Changes the budget of a device.
    fn set_budget(&self, py: Python<'_>, pool: u8, bytes: Option<u64>) -> PyResult<()> {
        let Some(mut held) = self.enter(py) else {
            return Ok(());
        };
        let core = &mut held.state.core;
        core.current = "changing the budget".into();
        if core.unbounded && bytes.is_some() {
            return Err(pyo3::exceptions::PyValueError::new_err(
                "a run that was started without a budget cannot be given one",
            ));
        }
        core.drain_deaths(py)?;
        core.set_given(PoolId(pool), bytes);
        core.engine
            .set_budget(PoolId(pool), bytes.map(|b| Bytes(b - slack(b))))
            .map_err(|e| core.refusal(py, &e))?;
        core.perform(py)?;
        core.collect();
        Ok(())
    }

    /// Counters of the run.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let d = PyDict::new(py);
        let Some(held) = self.enter(py) else {
            return Ok(d);
        };
        let s = &held.state;
        let c = s
            .counters_at_end
            .unwrap_or_else(|| s.core.engine.counters());
        d.set_item("budget", s.core.given(s.core.budget_pool))?;
        d.set_item("peak", s.core.ledger.peak(s.core.budget_pool))?;
        d.set_item("used", s.core.ledger.used(s.core.budget_pool))?;
        d.set_item("engine_memory", s.core.engine.memory(s.core.budget_pool).0)?;
        d.set_item("evictions", c.evictions)?;
        d.set_item("recomputed", c.replays)?;
        d.set_item("ops", s.ops)?;
        d.set_item("seconds", s.started.elapsed().as_secs_f64())?;
        d.set_item("recompute_seconds", s.core.replay_ns as f64 / 1e9)?;
        d.set_item("decide_seconds", s.core.decide_ns as f64 / 1e9)?;
        d.set_item("records", s.core.records.iter().flatten().count())?;
        d.set_item("storages", s.core.storages.all().count())?;
        Ok(d)
    }

    /// Notes a name in the trace.
    fn mark(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        let Some(mut held) = self.enter(py) else {
            return Ok(());
        };
        match &mut held.state.core.tracing {
            Some(tracing) => tracing.mark(name),
            None => Ok(()),
        }
    }
}

impl State {
    fn dispatch(
        &mut self,
        py: Python<'_>,
        overload: &Bound<'_, PyAny>,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Outcome> {
        self.ops += 1;
        if self.core.storages.has_deaths() {
            self.core.drain_deaths(py)?;
        }
        let key = overload.as_ptr() as usize;
        let func = match self.core.funcs.get(&key) {
            Some(func) => func.clone(),
            None => {
                let description = self.describe.bind(py).call1((overload,))?;
                let func = Arc::new(Func::from_description(
                    overload,
                    description.cast::<PyDict>()?,
                )?);
                self.core.funcs.insert(key, func.clone());
                func
            }
        };
        let outcome = match func.kind {
            Kind::View => {
                self.pin_parameters(py, &func, args)?;
                Outcome::Done(func.call.bind(py).call(args, kwargs)?.unbind())
            }
            Kind::Composite => return Ok(Outcome::Redispatch),
            _ => self.run(py, &func, args, kwargs)?,
        };
        if func.pins_results {
            if let Outcome::Done(result) = &outcome {
                for tensor in self.flatten(py, result.bind(py), 2)?.into_iter().flatten() {
                    self.pin_tensor(&tensor)?;
                }
            }
        }
        if func.accumulates {
            if let Outcome::Done(result) = &outcome {
                if self.accumulating.bind(py).call0()?.is_truthy()? {
                    self.pin_tensor(result.bind(py))?;
                }
            }
        }
        Ok(outcome)
    }

    /// Parameters that autograd reads are pinned: the next optimizer step will write them, every step reads them, and
    /// bringing one back from its random numbers would save nothing that lasts.
    fn pin_parameters(
        &mut self,
        py: Python<'_>,
        func: &Func,
        args: &Bound<'_, PyTuple>,
    ) -> PyResult<()> {
        for value in args.iter_borrowed() {
            if self.torch.class_of(&value)? == Class::Parameter
                && self.grad_enabled.bind(py).call0()?.is_truthy()?
            {
                self.core.current.clear();
                self.core.current.push_str(&func.name);
                self.pin_tensor(&value)?;
            }
        }
        Ok(())
    }

    fn pin_tensor(&mut self, tensor: &Bound<'_, PyAny>) -> PyResult<()> {
        if let Ok(storage) = call_one(&self.torch.untyped_storage, tensor) {
            if let Some(id) = self.core.storages.find(&storage) {
                return self.core.pin(tensor.py(), id);
            }
        }
        Ok(())
    }

    fn run(
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
                self.core.pin(py, walked.lives[i])?;
                // Pinning may have replayed; the tensor of a storage does not change by it.
            }
        }
        let chain = self.core.chain(&walked.inputs);
        self.core.cut_chains(py, chain)?;
        for i in 0..walked.parts.len() {
            self.core.pin(py, walked.parts[i])?;
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
    fn write_aliases(&self, walked: &mut Walk) {
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

    fn predict(
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
    fn run_signed(
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
        let op = self.begin(py, &spec)?;
        let rng = if func.random {
            Some(self.rng_state.bind(py).call1((args, kwargs))?.unbind())
        } else {
            None
        };
        let (result, cost) = match self.call(py, func, args, kwargs, signature) {
            Ok(done) => done,
            Err(e) => {
                self.core.cancel(py, op)?;
                return Err(e);
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
                func: func.overload.as_ptr() as usize,
                args: std::mem::take(&mut walked.args),
                kwargs: std::mem::take(&mut walked.kwargs),
                views: std::mem::take(&mut walked.views),
                written: std::mem::take(&mut walked.written),
                results,
                rng,
                grad,
                workspace: signature.workspace.0,
                workspace_pool: signature.workspace_pool,
                blank: None,
                holds: Vec::new(),
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

    /// If the op overwrites all of a blank storage, that input. Blank storages touched otherwise stay pinned:
    /// something may have written to them by raw pointer.
    fn filled(&mut self, py: Python<'_>, func: &Func, walked: &Walk) -> PyResult<Option<u32>> {
        let mut filled = None;
        for (i, &id) in walked.lives.iter().enumerate() {
            let Some(live) = self.core.storages.live_mut(id).filter(|live| live.blank) else {
                continue;
            };
            live.blank = false;
            let bytes = live.bytes;
            let mut views = walked.views.iter().filter(|v| v.input == i as u32);
            if let (true, [written], Some(view), None) =
                (func.fills, &walked.written[..], views.next(), views.next())
            {
                let mut covered: u64 = view.dtype.bind(py).getattr("itemsize")?.extract()?;
                for size in view.shape.bind(py).try_iter()? {
                    covered *= size?.extract::<u64>()?;
                }
                if *written == i as u32 && covered == bytes && bytes > self.tiny {
                    filled = Some(*written);
                }
            }
        }
        Ok(filled)
    }

    /// Runs an op that gives a blank storage its first value: to the engine, an op with a fresh output.
    #[allow(clippy::too_many_arguments)]
    fn fill(
        &mut self,
        py: Python<'_>,
        func: &Func,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
        walked: &mut Walk,
        signature: &mut Signature,
        grad: bool,
        filled: u32,
    ) -> PyResult<Py<PyAny>> {
        let id = walked.lives.remove(filled as usize);
        walked.inputs.remove(filled as usize);
        for view in &mut walked.views {
            match view.input.cmp(&filled) {
                std::cmp::Ordering::Equal => view.input = BLANK,
                std::cmp::Ordering::Greater => view.input -= 1,
                std::cmp::Ordering::Less => {}
            }
        }
        let Some((old, bytes, pool)) = self
            .core
            .storages
            .live(id)
            .map(|l| (l.tensor, l.bytes, l.pool))
        else {
            return Ok(func.call.bind(py).call(args, kwargs)?.unbind());
        };
        // The blank constant gives way to the op's output, byte for byte.
        let old_sid = self.core.engine.storage(old);
        self.core.storages.set_buffer(old_sid, Buffer::Empty);
        self.core.release(py, old)?;
        let outputs = [Output::Fresh {
            bytes: Bytes(bytes),
            pool,
        }];
        let spec = OpSpec {
            inputs: &walked.inputs,
            outputs: &outputs,
            workspace: signature.room(),
            workspace_pool: signature.workspace_pool,
            replay: Replay::Allowed,
        };
        let rng = if func.random {
            Some(self.rng_state.bind(py).call1((args, kwargs))?.unbind())
        } else {
            None
        };
        let chain = self.core.chain(&walked.inputs);
        let run = match self.begin(py, &spec) {
            Ok(op) => match self.call(py, func, args, kwargs, signature) {
                Ok((result, cost)) => Ok((op, result, cost)),
                Err(e) => self.core.cancel(py, op).and(Err(e)),
            },
            Err(e) => Err(e),
        };
        let (op, result, cost) = match run {
            Ok(done) => done,
            Err(e) => {
                self.readopt(py, id)?;
                return Err(e);
            }
        };
        let made = self.core.engine.outputs(op).to_vec();
        if let Some(tracing) = &mut self.core.tracing {
            let (workspace, workspace_pool) = (signature.workspace.0, signature.workspace_pool);
            tracing.op(
                &func.name,
                &walked.inputs,
                &outputs,
                &made,
                workspace,
                workspace_pool,
                cost,
                true,
                None,
            )?;
        }
        let finished = self.core.engine.finish(
            op,
            &Finished {
                cost: remat_core::Cost(cost),
                bytes: None,
            },
        );
        self.core.perform(py)?;
        finished.map_err(|e| self.core.refusal(py, &e))?;
        let sid = self.core.engine.storage(made[0]);
        if let Some(live) = self.core.storages.live_mut(id) {
            live.tensor = made[0];
        }
        self.core.storages.set_buffer(sid, Buffer::Live(id));
        let record = Record {
            func: func.overload.as_ptr() as usize,
            args: std::mem::take(&mut walked.args),
            kwargs: std::mem::take(&mut walked.kwargs),
            views: std::mem::take(&mut walked.views),
            written: Vec::new(),
            results: vec![Some(0)],
            rng,
            grad,
            workspace: signature.workspace.0,
            workspace_pool: signature.workspace_pool,
            blank: Some((bytes, pool)),
            holds: Vec::new(),
        };
        self.core.keep(py, op, record, &walked.lives)?;
        self.core.note_chain(&made, chain);
        self.core.collect();
        Ok(result.unbind())
    }

    /// Takes a storage back in as a constant, after the op that was to fill it did not run.
    fn readopt(&mut self, py: Python<'_>, id: LiveId) -> PyResult<()> {
        if let Some(live) = self.core.storages.forget(id) {
            self.core.uncount(py, &live)?;
            if let Some(object) = live.upgrade(py)? {
                self.core.constant(&object, live.pool)?;
            }
        }
        Ok(())
    }

    /// Announces an op and performs what must come first.
    fn begin(&mut self, py: Python<'_>, spec: &OpSpec<'_>) -> PyResult<OpId> {
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

    /// Runs the op; the first time measured, a few more times timed.
    fn call<'py>(
        &mut self,
        py: Python<'py>,
        func: &Func,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
        signature: &mut Signature,
    ) -> PyResult<(Bound<'py, PyAny>, u64)> {
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
            return Ok((func.call.bind(py).call(args, kwargs)?, signature.cost));
        }
        let sync = |s: &State| match &s.synchronize {
            Some(f) => f.bind(py).call0().map(|_| ()),
            None => Ok(()),
        };
        sync(self)?;
        let started = Instant::now();
        let result = func.call.bind(py).call(args, kwargs)?;
        sync(self)?;
        signature.sample(started.elapsed().as_nanos() as u64);
        Ok((result, signature.cost))
    }

    /// Storages get new values where no op that declares it writes them (batch normalisation's running statistics,
    /// resizing): what was computed from the old values is made independent of them.
    fn overwrite(
        &mut self,
        py: Python<'_>,
        name: &str,
        written: &[LiveId],
        workspace: u64,
    ) -> PyResult<()> {
        let mut inputs = Vec::with_capacity(written.len());
        for &id in written {
            self.core.pin(py, id)?;
            if let Some(live) = self.core.storages.live(id) {
                inputs.push(live.tensor);
            }
        }
        let outputs: Vec<Output> = (0..inputs.len()).map(|of| Output::InPlace { of }).collect();
        let spec = OpSpec {
            inputs: &inputs,
            outputs: &outputs,
            workspace: Bytes(workspace),
            workspace_pool: self.core.budget_pool,
            replay: Replay::Forbidden,
        };
        let op = self.begin(py, &spec)?;
        let made = self.core.engine.outputs(op).to_vec();
        if let Some(tracing) = &mut self.core.tracing {
            tracing.op(
                name,
                &inputs,
                &outputs,
                &made,
                workspace,
                self.core.budget_pool,
                0,
                false,
                None,
            )?;
        }
        self.core
            .engine
            .finish(
                op,
                &Finished {
                    cost: remat_core::Cost(0),
                    bytes: None,
                },
            )
            .map_err(|e| self.core.refusal(py, &e))?;
        self.core.perform(py)?;
        for (k, &id) in written.iter().enumerate() {
            self.supersede(py, id, made[k])?;
        }
        Ok(())
    }

    /// A live storage has a new value.
    fn supersede(&mut self, py: Python<'_>, id: LiveId, tensor: TensorId) -> PyResult<()> {
        let Some(live) = self.core.storages.live_mut(id) else {
            return Ok(());
        };
        let old = std::mem::replace(&mut live.tensor, tensor);
        if old == tensor {
            return Ok(());
        }
        let (old_sid, new_sid) = (
            self.core.engine.storage(old),
            self.core.engine.storage(tensor),
        );
        self.core.storages.set_buffer(old_sid, Buffer::Empty);
        self.core.storages.set_buffer(new_sid, Buffer::Live(id));
        self.core.release(py, old)
    }

    /// Tells the engine what an op made, and takes it in. Returns whether every result has a storage of its own.
    #[allow(clippy::too_many_arguments)]
    fn finish(
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
            self.core.pin(py, id)?;
        }
        for &input in &walked.written {
            left += self
                .check_size(py, walked.lives[input as usize])?
                .unwrap_or(0);
        }
        signature.leave(left);
        Ok(dense)
    }

    /// A result without a storage of its own (sparse): its parts become constants, and room is made for them before
    /// the next such op. Returns their bytes.
    fn take_parts<'py>(
        &mut self,
        tensor: &Bound<'py, PyAny>,
        strangers: &mut Vec<Bound<'py, PyAny>>,
        shared: &mut Vec<LiveId>,
    ) -> PyResult<u64> {
        let py = tensor.py();
        let mut total = 0u64;
        for storage in self.torch.parts(tensor)? {
            if let Some(id) = self.core.storages.find(&storage) {
                shared.push(id);
                continue;
            }
            total += storage
                .call_method0(pyo3::intern!(py, "nbytes"))?
                .extract::<u64>()?;
            strangers.push(storage);
        }
        Ok(total)
    }

    /// Prepares for a storage's being resized where no op is dispatched.
    fn before_resize(&mut self, storage: &Bound<'_, PyAny>, bytes: u64) -> PyResult<bool> {
        let py = storage.py();
        self.core.current = "resizing a storage".into();
        self.core.drain_deaths(py)?;
        let Some(id) = self.core.storages.find(storage) else {
            return Ok(false);
        };
        self.overwrite(py, "remat.resize", &[id], bytes)?;
        if let Some(live) = self.core.storages.live(id) {
            self.core.layout.set_guard(py, live.imp, Guard::Down);
        }
        Ok(true)
    }

    /// A foreign op may do to storages what it does not declare: sizes are looked at again.
    fn check_foreign(
        &mut self,
        py: Python<'_>,
        func: &Func,
        walked: &Walk,
        result: Option<&Py<PyAny>>,
    ) -> PyResult<()> {
        for (i, &id) in walked.lives.iter().enumerate() {
            let resized = self.check_size(py, id)?.is_some();
            if resized && result.is_some() && !walked.written.contains(&(i as u32)) {
                let message = format!(
                    "{}: it resized the storage of a tensor that it does not declare to write: \
                     name the argument in mutates_args",
                    func.name
                );
                return Err(remat_error(py, &message));
            }
        }
        let Some(result) = result else { return Ok(()) };
        for tensor in self.flatten(py, result.bind(py), 1)?.into_iter().flatten() {
            let Ok(storage) = call_one(&self.torch.untyped_storage, &tensor) else {
                continue;
            };
            let elements: u64 = tensor.call_method0("numel")?.extract()?;
            let Some(id) = self.core.storages.find(&storage) else {
                continue;
            };
            if elements > 0 {
                self.guard_freed(py, id);
            }
        }
        Ok(())
    }

    /// A storage without bytes: access to what is not there raises from now on, where plain torch would crash.
    fn guard_freed(&mut self, py: Python<'_>, id: LiveId) {
        if let Some(live) = self.core.storages.live_mut(id).filter(|l| l.bytes == 0) {
            live.freed = true;
            let imp = live.imp;
            self.core.layout.set_guard(py, imp, Guard::Up);
        }
    }

    /// A storage may have been resized: it is then taken in anew, as a constant. Returns by how many bytes
    /// it grew if it was.
    fn check_size(&mut self, py: Python<'_>, id: LiveId) -> PyResult<Option<u64>> {
        let Some(live) = self.core.storages.live(id) else {
            return Ok(None);
        };
        let Some(object) = live.upgrade(py)? else {
            return Ok(None);
        };
        let bytes: u64 = object
            .call_method0(pyo3::intern!(py, "nbytes"))?
            .extract()?;
        if bytes == live.bytes {
            if live.freed {
                self.guard_freed(py, id);
            }
            return Ok(None);
        }
        let mut grown = 0;
        if let Some(live) = self.core.storages.forget(id) {
            grown = bytes.saturating_sub(live.bytes);
            self.core.uncount(py, &live)?;
            let sid = self.core.engine.storage(live.tensor);
            self.core.storages.set_buffer(sid, Buffer::Empty);
            self.core.release(py, live.tensor)?;
            let (id, _) = self.core.constant(&object, live.pool)?;
            self.guard_freed(py, id);
        }
        Ok(Some(grown))
    }

    fn flatten<'py>(
        &mut self,
        py: Python<'py>,
        result: &Bound<'py, PyAny>,
        expected: usize,
    ) -> PyResult<Vec<Option<Bound<'py, PyAny>>>> {
        if result.is_none() {
            return Ok(Vec::new());
        }
        if matches!(
            self.torch.class_of(result)?,
            Class::Tensor | Class::Parameter
        ) {
            return Ok(vec![Some(result.clone())]);
        }
        let list = self.core.seam.flatten.bind(py).call1((result,))?;
        let mut flat = Vec::with_capacity(expected);
        for item in list.try_iter()? {
            let item = item?;
            flat.push((!item.is_none()).then_some(item));
        }
        Ok(flat)
    }

    fn restore(&mut self, py: Python<'_>) -> PyResult<()> {
        self.counters_at_end
            .get_or_insert(self.core.engine.counters());
        self.core.current = "leaving the budget".into();
        self.core.drain_deaths(py)?;
        for i in 0..self.core.pools.len() {
            // Raising a budget to none cannot fail.
            let _ = self.core.engine.set_budget(PoolId(i as u8), None);
        }
        let mut first_error = None;
        let evicted: Vec<LiveId> = self
            .core
            .storages
            .all()
            .filter(|(_, l)| !l.present)
            .map(|(id, _)| id)
            .collect();
        for id in evicted {
            let Some(live) = self.core.storages.live(id).filter(|l| !l.present) else {
                continue;
            };
            let tensor = live.tensor;
            let done = match self.core.engine.ensure(&[tensor]) {
                Ok(()) => self.core.perform(py),
                Err(e) => Err(self.core.refusal(py, &e)),
            };
            if let Err(e) = done {
                first_error.get_or_insert(e);
            }
        }
        for (_, live) in self.core.storages.all() {
            if live.present {
                self.core.layout.set_guard(py, live.imp, Guard::Down);
            }
        }
        self.knowledge.put_back(py, &self.core.pools);
        if let Some(tracing) = self.core.tracing.take() {
            tracing.finish()?;
        }
        match first_error {
            Some(e) => Err(e),
            None => Ok(()),
        }
    }
}
