//! The engine together with what performs its steps: storages, records, pools.

mod constants;
mod perform;
mod placed;
mod records;

use std::sync::Arc;

pub use placed::{is_exhausted, replaying, PLACED};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use remat_core::{Engine, Error, Observed, OpId, Placement, PoolId, Step, StorageId, TensorId};
use rustc_hash::FxHashMap;

use crate::arena::Arena;
use crate::func::Func;
use crate::layout::{Impl, Layout};
use crate::ledger::Ledger;
use crate::lineage::Lineage;
use crate::outside::Outside;
use crate::record::Record;
use crate::session::slack;
use crate::storages::{Buffer, Live, Storages};
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

/// Python functions of `remat._torch_internals.eager` that the session calls on its slower paths.
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
    /// Where the CPU's tensors lie, if in one arena.
    pub arena: Option<Arena>,
    /// Whether the engine's steps are being performed: what it says of storages is true only once they are.
    pub performing: bool,
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
    /// Where what is being made is to lie.
    placements: Vec<Placement>,
    observed: Vec<Observed>,
    owners: FxHashMap<u64, StorageId>,
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
            arena: None,
            performing: false,
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
            placements: Vec::new(),
            observed: Vec::new(),
            owners: FxHashMap::default(),
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
                let smallest = match self.arena {
                    Some(_) if *pool == PLACED => smallest.0 + kept,
                    _ => with_slack(smallest.0),
                };
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
        self.placements.clear();
        self.engine.cancel(op);
        self.perform(py)
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
