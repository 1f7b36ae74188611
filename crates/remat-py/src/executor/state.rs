//! The engine together with the tables that its steps change: storages, records, devices.

use std::sync::Arc;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use remat_core::{
    DeviceId, Engine, Error, Observed, OpId, Placement, Recorded, Step, StorageId, TensorId,
};
use rustc_hash::FxHashMap;

use super::passes::Passes;
use super::planning::{Planning, UnfitPlan};
use crate::call::func::Func;
use crate::call::global_state::GlobalState;
use crate::call::record::Record;
use crate::ffi::arena::Arena;
use crate::ffi::caching;
use crate::ffi::errors::{error_aside, raised, remat_error};
use crate::ffi::gil::Attach;
use crate::ffi::layout::Impl;
use crate::ffi::shell::{BlankMaker, Copier};
use crate::ffi::torch_internals::TorchInternals;
use crate::tracking::accelerators::Accelerators;
use crate::tracking::buffers::Buffer;
use crate::tracking::devices::{Device, Follow, PLACED};
use crate::tracking::ledger::Ledger;
use crate::tracking::lineage::Lineage;
use crate::tracking::live::{Live, UNTOLD};
use crate::tracking::outside::Outside;
use crate::tracking::owner::Owner;
use crate::tracking::slack::{with_headroom, with_slack};
use crate::tracking::storages::Storages;
use crate::tracking::trace::Trace;
use crate::tracking::unwatched::Unwatched;

/// The engine and everything that performing its steps needs.
pub struct Executor {
    /// The engine, which decides.
    pub engine: Engine,
    /// Torch storages.
    pub storages: Storages,
    /// Recorded calls, by op.
    pub records: Vec<Option<Record>>,
    /// Described ops, by address of the overload.
    pub funcs: FxHashMap<usize, Arc<Func>>,
    /// The device whose budget is reported.
    pub budget_device: DeviceId,
    /// Which allocations of an op, in the arena, are its results.
    pub passes: Passes,
    /// The kind of the call that the program made last, as `passes` know it.
    pub called: u64,
    /// The arena in which the CPU's tensors lie, if there is one.
    pub arena: Option<Arena>,
    /// Whether the engine's steps are being performed. Until they are, its account of storages is ahead of memory.
    pub performing: bool,
    /// Whether no device has a budget, nor ever will: the run is only watched.
    pub unbounded: bool,
    /// Whether this is the child of a fork, where nothing is bounded.
    pub forked: bool,
    /// Whether the budget moves to the first accelerator seen.
    pub follow: Follow,
    /// Devices, by device id.
    pub devices: Vec<Device>,
    /// The session's own account of bytes.
    pub ledger: Ledger,
    /// The devices among them that work beside the processor.
    pub accelerators: Accelerators,
    /// Chains of ops behind storages.
    pub lineage: Lineage,
    /// Torch, as reached through Python.
    pub internals: TorchInternals,
    /// The settings under which ops run.
    pub global_state: GlobalState,
    /// The trace being recorded, if any.
    pub trace: Option<Trace>,
    /// Plans of steps, if steps are planned.
    pub planning: Option<Planning>,
    /// The steps that repeat, as they were recorded, if a run is measured.
    pub measured: Option<Vec<Recorded>>,
    /// Whether the trace holds the run until the step among them was known that takes most.
    pub step_traced: bool,
    /// Whether plans may keep results after the program let go of them: storages can keep their bytes when they die.
    pub keeps: bool,
    /// Nanoseconds spent replaying.
    pub replay_ns: u64,
    /// Name of the op being prepared, for errors.
    pub current: String,
    /// The op begun last, until the engine forgets it.
    pub running: Option<OpId>,
    pub(super) outside: Outside,
    pub(super) unwatched: Unwatched,
    /// Address of the function that frees memory which torch allocated for the CPU.
    pub(super) own_deleter: usize,
    /// Budgets as the user gave them, by device id.
    given: Vec<Option<u64>>,
    /// Number of records kept now.
    pub(super) live_records: usize,
    /// Copiers of storages, by their bytes.
    pub(super) copiers: FxHashMap<u64, Copier>,
    /// Makers of storages, by their bytes.
    pub(super) blank_makers: FxHashMap<u64, BlankMaker>,
    /// Places of the outputs of the op or the replay that is under way.
    pub(super) placements: Vec<Placement>,
    // Buffers, kept for their capacity.
    pub(super) steps: Vec<Step>,
    pub(super) kept: Vec<Owner>,
    pub(super) observed: Vec<Observed>,
    pub(super) pinned: Vec<StorageId>,
    pub(super) owners: FxHashMap<u64, StorageId>,
    pub(super) dead_ops: Vec<OpId>,
    pub(super) dead_storages: Vec<StorageId>,
}

impl Executor {
    /// An executor that knows no storages and no devices yet.
    pub fn new(
        py: Python<'_>,
        engine: Engine,
        internals: TorchInternals,
        global_state: GlobalState,
        accelerators: Accelerators,
        trace: Option<Trace>,
    ) -> PyResult<Executor> {
        let own = internals
            .blank_storage
            .bind(py)
            .call1((py.import("torch")?.call_method1("device", ("cpu",))?, 64))?;
        // SAFETY: `own` is in scope and owns the storage.
        let own_deleter = unsafe { internals.layout.origin(py, Impl::of(&own)?) }.deleter;
        Ok(Executor {
            outside: Outside::default(),
            unwatched: Unwatched::default(),
            own_deleter,
            engine,
            storages: Storages::new(py)?,
            records: Vec::new(),
            funcs: FxHashMap::default(),
            devices: Vec::new(),
            accelerators,
            budget_device: DeviceId(0),
            passes: Passes::default(),
            called: 0,
            arena: None,
            performing: false,
            unbounded: false,
            forked: false,
            follow: Follow::Fixed,
            ledger: Ledger::default(),
            lineage: Lineage::default(),
            internals,
            global_state,
            trace,
            planning: None,
            measured: None,
            step_traced: false,
            keeps: false,
            replay_ns: 0,
            current: String::new(),
            given: Vec::new(),
            copiers: FxHashMap::default(),
            blank_makers: FxHashMap::default(),
            steps: Vec::new(),
            kept: Vec::new(),
            placements: Vec::new(),
            observed: Vec::new(),
            pinned: Vec::new(),
            owners: FxHashMap::default(),
            running: None,
            live_records: 0,
            dead_ops: Vec::new(),
            dead_storages: Vec::new(),
        })
    }

    /// The id of a device, by name; registers it when new.
    pub fn device_id(&mut self, name: &str, device: &Bound<'_, PyAny>) -> PyResult<DeviceId> {
        if let Some(i) = self.devices.iter().position(|p| p.name == name) {
            return Ok(DeviceId(i as u8));
        }
        if self.devices.len() >= 250 {
            return Err(PyRuntimeError::new_err("more than 250 devices"));
        }
        self.devices.push(Device {
            name: name.to_owned(),
            device: device.clone().unbind(),
        });
        let id = DeviceId((self.devices.len() - 1) as u8);
        if self.follow == Follow::Accelerator && name != "cpu" && !name.starts_with("meta") {
            // The script turned out to use an accelerator: the budget is of that.
            self.follow = Follow::Fixed;
            let given = self.given(self.budget_device);
            let left = given.map(|given| self.left_of(given, id));
            self.engine
                .set_budget(self.budget_device, None)
                .map_err(|e| self.refusal(device.py(), &e))?;
            self.engine
                .set_budget(id, left)
                .map_err(|e| self.refusal(device.py(), &e))?;
            self.perform(device.py())?;
            self.set_given(self.budget_device, None);
            self.set_given(id, given);
            self.budget_device = id;
            if let Some(timeline) = &self.storages.timeline {
                timeline.tell(|recorder| recorder.set_device(id));
            }
            self.load_plans(UnfitPlan::Refused)?;
        }
        Ok(id)
    }

    /// The budget that the user gave a device.
    pub fn given(&self, device: DeviceId) -> Option<u64> {
        self.given.get(device.0 as usize).copied().flatten()
    }

    /// Sets the budget that the user gave a device.
    pub fn set_given(&mut self, device: DeviceId, bytes: Option<u64>) {
        let i = device.0 as usize;
        if self.given.len() <= i {
            self.given.resize(i + 1, None);
        }
        self.given[i] = bytes;
        if self.devices.get(i).is_some_and(|known| known.name == "cpu") {
            caching::set_limit(bytes);
        }
    }

    /// The storage that a tensor views.
    ///
    /// # Panics
    /// For an id that the engine did not give out: ids come from the engine alone, and it forgets none.
    pub fn storage_of(&self, tensor: TensorId) -> StorageId {
        let storage = self.engine.storage(tensor);
        // The engine's records of tensors are used again, never removed: a number that it gave out stays in range.
        storage.expect("the engine gave this id out")
    }

    /// Turns an engine's refusal into the Python exception.
    pub fn refusal(&self, gil: impl Attach, error: &Error) -> PyErr {
        let raised = gil.attach(|py| Ok(self.exception(py, error)));
        raised.unwrap_or_else(|ended| ended)
    }

    fn exception(&self, py: Python<'_>, error: &Error) -> PyErr {
        match error {
            Error::Budget {
                device,
                budget,
                needed,
                smallest,
            } => {
                let name = self
                    .devices
                    .get(device.0 as usize)
                    .map_or("?", |p| p.name.as_str());
                // The user's budget includes the part that is kept back.
                let given = self.given(*device).unwrap_or(budget.0);
                let kept = given - budget.0.min(given);
                let smallest = match self.arena {
                    Some(_) if *device == PLACED => smallest.0 + kept,
                    _ => with_slack(smallest.0 + self.beside(*device)),
                };
                raised(self.internals.budget_error.bind(py).call1((
                    &self.current,
                    needed.0 + kept,
                    smallest,
                    given,
                    name,
                    with_headroom(smallest, given),
                )))
            }
            other => remat_error(py, &format!("{}: {other}", self.current)),
        }
    }

    /// Tells the engine which storages died since the last time.
    #[inline]
    pub fn drain_deaths(&mut self, gil: impl Attach) -> PyResult<()> {
        if !self.storages.has_deaths() {
            return Ok(());
        }
        while let Some(former) = self.storages.next_death(gil) {
            if former.maker > 0 {
                self.engine.note_gone(former.maker);
            }
            if former.tensor == UNTOLD {
                self.uncount(gil, &former)?;
                continue;
            }
            let sid = self.storage_of(former.tensor);
            self.storages.set_buffer(sid, Buffer::Empty);
            let remains = former.remains();
            let inherited = remains
                .map(|remains| gil.attach(|py| self.inherit(py, sid, &former, remains)))
                .transpose()?;
            if inherited != Some(true) {
                self.engine.do_not_keep(sid);
                self.uncount(gil, &former)?;
            }
            self.release(gil, former.tensor)?;
        }
        Ok(())
    }

    /// Subtracts the bytes of a storage that left the table.
    pub fn uncount(&mut self, gil: impl Attach, former: &Live) -> PyResult<()> {
        former.leave_elsewhere();
        match former.outside {
            Some(place) => {
                if let Some(region) = self.outside.leave(place) {
                    self.ledger.sub(region.device, region.bytes);
                    self.tell_outside(region.device, -(region.bytes as i64));
                    self.release(gil, region.tensor)?;
                }
            }
            None if former.present => self.ledger.sub(former.device, former.bytes),
            None => {}
        }
        Ok(())
    }

    /// Drops a live storage's reference to its tensor.
    pub fn release(&mut self, gil: impl Attach, tensor: TensorId) -> PyResult<()> {
        self.engine
            .release(tensor)
            .map_err(|e| self.refusal(gil, &e))?;
        if let Some(trace) = &mut self.trace {
            trace.release(tensor);
        }
        self.perform(gil)?;
        self.collect();
        Ok(())
    }

    /// Tells the engine that the op begun did not run.
    pub fn cancel(&mut self, gil: impl Attach, op: OpId) -> PyResult<()> {
        self.running = None;
        if !self.engine.is_open(op) {
            return Ok(());
        }
        self.placements.clear();
        self.engine.cancel(op);
        self.perform(gil)
    }

    /// A call of an op has ended. If it failed after the op was begun, nothing of the op stays: it is cancelled, or its
    /// results, of which there may be no record, are constants or given up. If it went well and the trace cannot be
    /// written, it tells so here.
    pub fn ended<T>(&mut self, gil: impl Attach, outcome: PyResult<T>) -> PyResult<T> {
        match (self.running.take(), &outcome) {
            (Some(op), Err(_)) => {
                // The error that is on its way tells more than one of giving the op up.
                let _ = gil.attach(|py| error_aside(py, || self.give_up(py, op)));
            }
            (Some(_), Ok(_)) => self.trace.as_mut().map_or(Ok(()), Trace::tell_failure)?,
            (None, _) => {}
        }
        outcome
    }

    fn give_up(&mut self, py: Python<'_>, op: OpId) -> PyResult<()> {
        if self.engine.is_open(op) {
            return self.cancel(py, op);
        }
        let mut outcome = Ok(());
        for tensor in self.engine.outputs(op).to_vec() {
            let given_up = match *self.storages.buffer(self.storage_of(tensor)) {
                Buffer::Live(id) => self.pin(py, id),
                _ => self.release(py, tensor), // refused where it was released before
            };
            outcome = outcome.and(given_up);
        }
        outcome
    }

    /// The device of a storage; `None` for devices without memory of their own.
    pub fn device_of(&mut self, storage: &Bound<'_, PyAny>) -> PyResult<Option<DeviceId>> {
        let py = storage.py();
        let found = self.internals.device_of.bind(py).call1((storage,))?;
        if found.is_none() {
            return Ok(None);
        }
        let (name, device): (String, Bound<'_, PyAny>) = found.extract()?;
        self.device_id(&name, &device).map(Some)
    }
}
