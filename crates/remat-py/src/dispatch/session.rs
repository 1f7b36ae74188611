//! The dispatch mode: every torch op of the program passes through [`Session::__torch_dispatch__`].

mod blank;
mod dispatch;
mod evictor;
mod placed;
mod restore;
mod run;
mod sizes;
mod versions;

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::Instant;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use remat_core::{
    Alignment, Bytes, Config, Counters, Ends, Engine, Memory, Moves, Policy, PoolId, ThrashLimit,
};

use crate::arena::{ALIGNMENT, SMALLEST};
use crate::arguments::Torch;
use crate::core_state::{CoreState, Follow, Seam};
use crate::knowledge::Knowledge;
use crate::layout::Layout;
use crate::tracing::Tracing;
use evictor::Lent;

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
    /// Where the state is lent while an op runs.
    lent: Arc<Lent>,
    ops: u64,
    started: Instant,
    counters_at_end: Option<Counters>,
    /// What the allocator had before the op that runs and is measured.
    before: Option<placed::Before>,
    /// The arena's high-water mark when it was left.
    arena_peak: u64,
}

/// A budget in force: a torch dispatch mode whose decisions the engine makes.
#[pyclass(frozen, subclass, module = "remat._native")]
pub struct Session {
    state: Mutex<State>,
    /// Thread that holds the lock, so that it recognises its own calls from within an op.
    owner: AtomicU64,
    /// As in the state, to be read from within an op.
    writing: Arc<Mutex<Vec<usize>>>,
    lent: Arc<Lent>,
}

/// What copying within main memory is reckoned to take: less than machines do, so that a plan that copies is not the slower one.
const COPIES: Moves = Moves::Copied {
    bytes_per_microsecond: NonZeroU32::new(4000).unwrap(),
};

/// Nanoseconds since the first call.
fn nanoseconds() -> u64 {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    FIRST.get_or_init(Instant::now).elapsed().as_nanos() as u64
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
    (budget / 256).clamp(16 << 10, 1 << 20).min(budget / 8)
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
    /// `budgets` is a list of (device name, device, bytes or None); the first is the one reported. With `arena` it is the CPU's, and
    /// memory has addresses once [`enter_arena`](Self::enter_arena) was called; with
    /// `moves` blocks that are in the way may be copied elsewhere.
    #[new]
    #[pyo3(signature = (seam, layout, budgets, policy, seed, thrash, trace, follow, arena=false, moves=false))]
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
        arena: bool,
        moves: bool,
    ) -> PyResult<Session> {
        let py = seam.py();
        let policy: Policy = policy.parse().map_err(|e: remat_core::UnknownPolicy| {
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
            memory: if arena {
                Memory::Arena(remat_core::Arena {
                    alignment: Alignment::new(ALIGNMENT).unwrap_or_default(),
                    ends: match policy {
                        Policy::Coop { .. } => Ends::BySize,
                        _ => Ends::Low,
                    },
                    smallest: Bytes(SMALLEST),
                    moves: match policy {
                        Policy::Coop { .. } if moves => COPIES,
                        _ => Moves::Never,
                    },
                })
            } else {
                Memory::Fungible
            },
            stopwatch: arena.then_some(nanoseconds),
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
        let lent = Arc::new(Lent::none());
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
            lent: lent.clone(),
            ops: 0,
            started: Instant::now(),
            counters_at_end: None,
            before: None,
            arena_peak: 0,
        };
        Ok(Session {
            state: Mutex::new(state),
            owner: AtomicU64::new(0),
            writing,
            lent,
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
            Some(id) => core.pin_in_place(storage.py(), id),
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

    /// The allocator's arena, of so many bytes, was opened: tensors that come lie in it.
    fn enter_arena(slf: &Bound<'_, Self>, bytes: u64) -> PyResult<()> {
        let py = slf.py();
        let Some(mut held) = slf.get().enter(py) else {
            return Ok(());
        };
        held.state.enter_arena(py, bytes)?;
        evictor::register(Some(slf.clone().unbind()));
        Ok(())
    }

    /// The arena is about to be closed: nobody makes room in it any more.
    fn leave_arena(&self, py: Python<'_>) {
        if let Some(mut held) = self.enter(py) {
            held.state.leave_arena();
        }
        evictor::register(None);
    }

    /// This process is the child of a fork: nothing is evicted any more, and what was is brought back when it is touched. Returns false
    /// if another thread of the parent was amid an op: nothing can be told of the state then.
    fn forked(&self, py: Python<'_>) -> PyResult<bool> {
        let Ok(mut state) = self.state.try_lock() else {
            return Ok(false);
        };
        if self.owner.load(Ordering::Acquire) != 0 {
            return Ok(false);
        }
        let core = &mut state.core;
        // The file is the parent's: what is buffered here must not be written twice.
        std::mem::forget(core.tracing.take());
        core.arena = None;
        for pool in 0..core.pools.len() {
            let lifted = core.engine.set_budget(PoolId(pool as u8), None);
            lifted.map_err(|e| core.refusal(py, &e))?;
        }
        Ok(true)
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
        d.set_item("shortages", c.shortages)?;
        d.set_item("free_after", c.free_after)?;
        d.set_item("most_free_after", c.most_free_after)?;
        d.set_item("moved_bytes", c.moved_bytes)?;
        d.set_item("searches", c.searches)?;
        d.set_item("search_seconds", s.core.engine.search_time() as f64 / 1e9)?;
        d.set_item("evicted_bytes", c.evicted_bytes)?;
        d.set_item("unused_evicted_bytes", c.unused_evicted_bytes)?;
        d.set_item("high_water", s.high_water())?;
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
