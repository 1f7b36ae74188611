//! The engine together with what performs its steps: storages, records, pools.

use std::sync::Arc;
use std::time::Instant;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use remat_core::{Bytes, Engine, Error, Mutation, OpId, PoolId, Step, StorageId, TensorId};
use rustc_hash::FxHashMap;

use crate::arguments::Registry;
use crate::func::Func;
use crate::layout::{Guard, Impl, Layout};
use crate::ledger::Ledger;
use crate::lineage::{Lineage, LONG};
use crate::outside::{Outside, Place};
use crate::record::{Hold, Record, BLANK};
use crate::session::slack;
use crate::storages::{Buffer, Live, LiveId, Storages};
use crate::tracing::Tracing;

/// A device with memory of its own.
pub struct Pool {
    /// Its name, as torch writes it (`cpu`, `cuda:0`).
    pub name: String,
    /// `torch.device`.
    pub device: Py<PyAny>,
}

/// Which device a single budget without a device is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// The one it was given for.
    Fixed,
    /// The CPU until the program uses an accelerator, then that.
    Accelerator,
}

/// Python functions of `remat._torch_seam` that the session calls on its slower paths.
pub struct Seam {
    /// `view(storage, dtype, device, offset, shape, stride, conj, neg) -> Tensor`.
    pub view: Py<PyAny>,
    /// `empty_storage(device) -> UntypedStorage`.
    pub empty_storage: Py<PyAny>,
    /// `blank_storage(device, bytes) -> UntypedStorage`.
    pub blank_storage: Py<PyAny>,
    /// `device_of(storage) -> (name, device) | None`.
    pub device_of: Py<PyAny>,
    /// `replay_random(call, args, kwargs, state) -> result`.
    pub replay_random: Py<PyAny>,
    /// `budget_error(op, needed, smallest, budget, device) -> exception`.
    pub budget_error: Py<PyAny>,
    /// `flatten(result) -> list[Tensor | None]`.
    pub flatten: Py<PyAny>,
    /// `use_count(storage) -> int`: owners of the storage in C++, its Python object counting as one.
    pub use_count: Py<PyAny>,
}

/// The engine and the hands that perform what it says.
pub struct CoreState {
    /// Decides.
    pub engine: Engine,
    /// Torch storages.
    pub storages: Storages,
    /// Recorded calls, by op.
    pub records: Vec<Option<Record>>,
    /// Described ops, by address of the overload.
    pub funcs: FxHashMap<usize, Arc<Func>>,
    /// The device that the budget in reports is of.
    pub budget_pool: PoolId,
    /// No device has a budget, nor will: the run is only watched.
    pub unbounded: bool,
    /// Whether the budget moves to the first accelerator seen.
    pub follow: Follow,
    /// Devices.
    pub pools: Vec<Pool>,
    /// Bytes as the allocator saw them.
    pub ledger: Ledger,
    /// Chains of ops behind storages.
    pub lineage: Lineage,
    /// Where `StorageImpl` keeps what is moved.
    pub layout: Layout,
    /// Slow paths in Python.
    pub seam: Seam,
    /// `TensorBase.untyped_storage`.
    pub untyped_storage: Py<PyAny>,
    /// `torch._C._set_grad_enabled`.
    pub set_grad: Py<PyAny>,
    /// The trace being recorded, if any.
    pub tracing: Option<Tracing>,
    /// Nanoseconds spent replaying.
    pub replay_ns: u64,
    /// Nanoseconds spent in the engine under pressure.
    pub decide_ns: u64,
    /// Name of the op being prepared, for errors.
    pub current: String,
    outside: Outside,
    /// What frees memory that torch allocated for the CPU.
    own_deleter: usize,
    given: Vec<Option<u64>>,
    steps: Vec<Step>,
    /// The op begun last, until the engine forgets it.
    pub running: Option<OpId>,
    /// Records kept now.
    live_records: usize,
    dead_ops: Vec<OpId>,
    dead_storages: Vec<StorageId>,
}

impl CoreState {
    /// Puts the parts together.
    pub fn new(
        py: Python<'_>,
        engine: Engine,
        layout: Layout,
        seam: Seam,
        untyped_storage: Py<PyAny>,
        set_grad: Py<PyAny>,
        tracing: Option<Tracing>,
    ) -> PyResult<CoreState> {
        let own = seam
            .blank_storage
            .bind(py)
            .call1((py.import("torch")?.call_method1("device", ("cpu",))?, 64))?;
        let own_deleter = layout.origin(py, Impl::of(&own)?).deleter;
        Ok(CoreState {
            outside: Outside::default(),
            own_deleter,
            engine,
            storages: Storages::new(py)?,
            records: Vec::new(),
            funcs: FxHashMap::default(),
            pools: Vec::new(),
            budget_pool: PoolId(0),
            unbounded: false,
            follow: Follow::Fixed,
            ledger: Ledger::default(),
            lineage: Lineage::default(),
            layout,
            seam,
            untyped_storage,
            set_grad,
            tracing,
            replay_ns: 0,
            decide_ns: 0,
            current: String::new(),
            given: Vec::new(),
            steps: Vec::new(),
            running: None,
            live_records: 0,
            dead_ops: Vec::new(),
            dead_storages: Vec::new(),
        })
    }

    /// The pool of a device, by name; registers it when new.
    pub fn pool(&mut self, name: &str, device: &Bound<'_, PyAny>) -> PyResult<PoolId> {
        if let Some(i) = self.pools.iter().position(|p| p.name == name) {
            return Ok(PoolId(i as u8));
        }
        if self.pools.len() >= 250 {
            return Err(PyRuntimeError::new_err("more than 250 devices"));
        }
        self.pools.push(Pool {
            name: name.to_owned(),
            device: device.clone().unbind(),
        });
        let pool = PoolId((self.pools.len() - 1) as u8);
        if self.follow == Follow::Accelerator && name != "cpu" {
            // The script turned out to use an accelerator: the budget is of that.
            self.follow = Follow::Fixed;
            let budget = self.engine.budget(self.budget_pool);
            self.engine
                .set_budget(self.budget_pool, None)
                .map_err(|e| self.refusal(device.py(), &e))?;
            self.engine
                .set_budget(pool, budget)
                .map_err(|e| self.refusal(device.py(), &e))?;
            self.perform(device.py())?;
            let given = self.given(self.budget_pool);
            self.set_given(self.budget_pool, None);
            self.set_given(pool, given);
            self.budget_pool = pool;
        }
        Ok(pool)
    }

    /// The budget that the user gave a device.
    pub fn given(&self, pool: PoolId) -> Option<u64> {
        self.given.get(pool.0 as usize).copied().flatten()
    }

    /// Notes the budget that the user gave a device.
    pub fn set_given(&mut self, pool: PoolId, bytes: Option<u64>) {
        let i = pool.0 as usize;
        if self.given.len() <= i {
            self.given.resize(i + 1, None);
        }
        self.given[i] = bytes;
    }

    /// Turns an engine's refusal into the Python exception.
    pub fn refusal(&self, py: Python<'_>, error: &Error) -> PyErr {
        match error {
            Error::Budget {
                pool,
                budget,
                needed,
                smallest,
            } => {
                let device = self
                    .pools
                    .get(pool.0 as usize)
                    .map_or("?", |p| p.name.as_str());
                // In the user's terms: with the part of the budget that is kept back.
                let given = self.given(*pool).unwrap_or(budget.0);
                let kept = given - budget.0.min(given);
                let smallest = with_slack(smallest.0);
                match self.seam.budget_error.bind(py).call1((
                    &self.current,
                    needed.0 + kept,
                    smallest,
                    given,
                    device,
                )) {
                    Ok(e) => PyErr::from_value(e),
                    Err(e) => e,
                }
            }
            other => match py
                .import("remat._errors")
                .and_then(|m| m.getattr("RematError"))
            {
                Ok(class) => match class.call1((format!("{}: {other}", self.current),)) {
                    Ok(e) => PyErr::from_value(e),
                    Err(e) => e,
                },
                Err(e) => e,
            },
        }
    }

    /// Tells the engine of storages that died since the last time.
    pub fn drain_deaths(&mut self, py: Python<'_>) -> PyResult<()> {
        while let Some(live) = self.storages.next_death() {
            let sid = self.engine.storage(live.tensor);
            self.storages.set_buffer(sid, Buffer::Empty);
            self.uncount(py, &live)?;
            self.release(py, live.tensor)?;
        }
        Ok(())
    }

    /// The bytes of a storage that left the table are not there any more.
    pub fn uncount(&mut self, py: Python<'_>, live: &Live) -> PyResult<()> {
        match live.outside {
            Some(place) => {
                if let Some(region) = self.outside.leave(place) {
                    self.ledger.sub(region.pool, region.bytes);
                    self.release(py, region.tensor)?;
                }
            }
            None if live.present => self.ledger.sub(live.pool, live.bytes),
            None => {}
        }
        Ok(())
    }

    /// Drops the reference that a live storage stands for.
    pub fn release(&mut self, py: Python<'_>, tensor: TensorId) -> PyResult<()> {
        if let Some(tracing) = &mut self.tracing {
            tracing.release(tensor)?;
        }
        self.engine
            .release(tensor)
            .map_err(|e| self.refusal(py, &e))?;
        self.perform(py)?;
        self.collect();
        Ok(())
    }

    /// Tells the engine that the op begun did not run.
    pub fn cancel(&mut self, py: Python<'_>, op: OpId) -> PyResult<()> {
        self.engine.cancel(op);
        self.perform(py)
    }

    /// Forgets records of ops that the engine will not replay any more.
    pub fn collect(&mut self) {
        let collected = self.engine.collected();
        if collected.ops.is_empty() && collected.storages.is_empty() {
            return;
        }
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

    /// Keeps the record of an op for its replays. Constants that it reads stay alive as long as it does, those that
    /// become constants later included.
    pub fn keep(
        &mut self,
        py: Python<'_>,
        op: OpId,
        mut record: Record,
        lives: &[LiveId],
    ) -> PyResult<()> {
        self.collect();
        if self.running != Some(op) {
            return Ok(()); // forgotten as it finished: what it made are constants, or nobody holds it
        }
        if self.unbounded {
            return Ok(()); // nothing is ever evicted, and a dropped constant must not live longer than without Remat
        }
        for &id in lives {
            let Some(live) = self.storages.live_mut(id) else {
                continue;
            };
            live.readers += 1;
            record.holds.push(Hold {
                id,
                serial: live.serial,
            });
            self.hold_if_pinned(py, id)?;
        }
        if self.records.len() <= op.index() {
            self.records.resize_with(op.index() + 1, || None);
        }
        self.records[op.index()] = Some(record);
        self.live_records += 1;
        Ok(())
    }

    /// A constant that recorded ops read is kept alive: once dropped it could not be had again.
    fn hold_if_pinned(&mut self, py: Python<'_>, id: LiveId) -> PyResult<()> {
        let Some(live) = self.storages.live(id) else {
            return Ok(());
        };
        let wanted = live.readers > 0 && live.hold.is_none() && live.present;
        if !wanted || !self.engine.is_pinned(self.engine.storage(live.tensor)) {
            return Ok(());
        }
        let object = live.upgrade(py)?.map(Bound::unbind);
        if let Some(object) = object {
            self.storages.hold(id, object);
        }
        Ok(())
    }

    /// As an op overwrites a constant the engine pins what was computed from it: those are constants from now on.
    pub fn hold_all_pinned(&mut self, py: Python<'_>) -> PyResult<()> {
        let read: Vec<LiveId> = self
            .storages
            .all()
            .filter(|(_, live)| live.readers > 0 && live.hold.is_none())
            .map(|(id, _)| id)
            .collect();
        for id in read {
            self.hold_if_pinned(py, id)?;
        }
        Ok(())
    }

    /// Performs the engine's latest steps. If one fails, the engine is told how far they got.
    pub fn perform(&mut self, py: Python<'_>) -> PyResult<()> {
        if self.engine.steps().is_empty() {
            return Ok(());
        }
        let mut steps = std::mem::take(&mut self.steps);
        steps.clear();
        steps.extend_from_slice(self.engine.steps());
        let mut outcome = Ok(());
        for (done, step) in steps.iter().enumerate() {
            let result = match *step {
                Step::Evict(sid) => self.evict(py, sid),
                Step::Recompute { op, mutation } => self.recompute(py, op, mutation),
            };
            if let Err(e) = result {
                self.engine.abort(done);
                outcome = Err(e);
                break;
            }
        }
        self.steps = steps;
        outcome
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

    /// The pool a storage lives in; `None` for devices without memory of their own.
    pub fn device_of(&mut self, storage: &Bound<'_, PyAny>) -> PyResult<Option<PoolId>> {
        let py = storage.py();
        let found = self.seam.device_of.bind(py).call1((storage,))?;
        if found.is_none() {
            return Ok(None);
        }
        let (name, device): (String, Bound<'_, PyAny>) = found.extract()?;
        self.pool(&name, &device).map(Some)
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

    /// Makes a live storage resident and pinned: its bytes were shown to something that torch does not tell us of.
    pub fn pin(&mut self, py: Python<'_>, id: LiveId) -> PyResult<()> {
        let Some(live) = self.storages.live(id) else {
            return Ok(());
        };
        let tensor = live.tensor;
        if self.engine.is_pinned(self.engine.storage(tensor)) {
            return Ok(());
        }
        self.engine.pin(tensor).map_err(|e| self.refusal(py, &e))?;
        if let Some(tracing) = &mut self.tracing {
            tracing.pin(tensor)?;
        }
        self.perform(py)?;
        self.hold_if_pinned(py, id)?;
        self.collect();
        Ok(())
    }

    /// The chain of ops behind the result of an op that reads these tensors.
    pub fn chain(&self, inputs: &[TensorId]) -> u32 {
        let lengths = inputs.iter().map(|&input| {
            let sid = self.engine.storage(input);
            if self.engine.is_pinned(sid) {
                0
            } else {
                self.lineage.of(sid)
            }
        });
        lengths.max().unwrap_or(0).saturating_add(1)
    }

    /// Notes the chain of ops behind what an op made.
    pub fn note_chain(&mut self, made: &[TensorId], length: u32) {
        for &tensor in made {
            self.lineage.set(self.engine.storage(tensor), length);
        }
    }

    /// Before an op: if chains have become long and the program holds as little as it does at its low points, what it
    /// carries on is pinned.
    pub fn cut_chains(&mut self, py: Python<'_>, length: u32) -> PyResult<()> {
        if !self
            .lineage
            .is_time(length, self.live_records, self.storages.held())
        {
            return Ok(());
        }
        let carried: Vec<LiveId> = self
            .storages
            .all()
            .filter(|(_, live)| {
                let sid = self.engine.storage(live.tensor);
                self.lineage.of(sid) >= LONG / 2 && !self.engine.is_pinned(sid)
            })
            .map(|(id, _)| id)
            .collect();
        for id in carried {
            match self.pin(py, id) {
                Err(e) if e.is_instance(py, &budget_error(py)?) => {}
                done => done?,
            }
        }
        Ok(())
    }

    /// Evicts until so many bytes are free.
    pub fn make_room(&mut self, py: Python<'_>, bytes: u64, pool: PoolId) -> PyResult<()> {
        let room = self
            .engine
            .constant(Bytes(bytes), pool)
            .map_err(|e| self.refusal(py, &e))?;
        self.perform(py)?;
        self.engine
            .release(room)
            .map_err(|e| self.refusal(py, &e))?;
        self.perform(py)?;
        self.collect();
        Ok(())
    }

    /// Registers a storage made where the session could not see it: a constant.
    pub fn constant(
        &mut self,
        storage: &Bound<'_, PyAny>,
        pool: PoolId,
    ) -> PyResult<(LiveId, TensorId)> {
        let py = storage.py();
        let bytes: u64 = storage.call_method0("nbytes")?.extract()?;
        let outside = self.place_outside(storage, bytes, pool)?;
        let counted = match outside {
            None => bytes,
            Some(place) => {
                if !self.outside.share(place) {
                    let region = self.count_constant(py, bytes, pool)?;
                    self.outside.insert(place, region, pool);
                }
                0
            }
        };
        let tensor = match self.count_constant(py, counted, pool) {
            Ok(tensor) => tensor,
            Err(e) => {
                if let Some(region) = outside.and_then(|place| self.outside.leave(place)) {
                    self.ledger.sub(region.pool, region.bytes);
                    self.release(py, region.tensor)?;
                }
                return Err(e);
            }
        };
        let id = self
            .storages
            .insert(storage, tensor, self.engine.storage(tensor), bytes, pool)?;
        if let Some(live) = self.storages.live_mut(id) {
            live.outside = outside;
        }
        Ok((id, tensor))
    }

    /// Where the bytes of a storage are, if torch did not allocate them.
    fn place_outside(
        &self,
        storage: &Bound<'_, PyAny>,
        bytes: u64,
        pool: PoolId,
    ) -> PyResult<Option<Place>> {
        if bytes == 0 || self.pools[pool.0 as usize].name != "cpu" {
            return Ok(None);
        }
        let origin = self.layout.origin(storage.py(), Impl::of(storage)?);
        let outside = origin.data != 0 && origin.deleter != self.own_deleter;
        Ok(outside.then_some((origin.data, bytes)))
    }

    /// Bytes that cannot be recomputed: to the account, the engine and the trace.
    fn count_constant(&mut self, py: Python<'_>, bytes: u64, pool: PoolId) -> PyResult<TensorId> {
        self.ledger.add(pool, bytes);
        let tensor = match self.engine.constant(Bytes(bytes), pool) {
            Ok(tensor) => tensor,
            Err(e) => {
                self.ledger.sub(pool, bytes);
                return Err(self.refusal(py, &e));
            }
        };
        self.perform(py)?;
        if let Some(tracing) = &mut self.tracing {
            tracing.constant(tensor, bytes, pool)?;
        }
        Ok(tensor)
    }
}

/// `remat.BudgetError`.
pub fn budget_error(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    py.import("remat._errors")?.getattr("BudgetError")
}

/// The smallest budget whose part beyond the slack is so many bytes.
fn with_slack(bytes: u64) -> u64 {
    let mut budget = bytes + slack(bytes);
    while budget - slack(budget) < bytes {
        budget += bytes - (budget - slack(budget));
    }
    budget
}

/// Whether installed bytes are new to the ledger.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moved {
    /// Counted already, under another storage.
    Bytes,
    /// Just made.
    New,
}

impl Registry for CoreState {
    fn resolve(&mut self, storage: &Bound<'_, PyAny>) -> PyResult<Option<(LiveId, TensorId)>> {
        if let Some(id) = self.storages.find(storage) {
            if let Some(live) = self.storages.live(id) {
                return Ok(Some((id, live.tensor)));
            }
        }
        match self.device_of(storage)? {
            Some(pool) => self.constant(storage, pool).map(Some),
            None => Ok(None),
        }
    }
}
