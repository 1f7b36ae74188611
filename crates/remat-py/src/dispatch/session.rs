//! The session as Python sees it: the dispatch mode's class and its methods.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use remat_core::{DeviceId, Engine};

use super::costs::Costs;
use super::evictor;
use super::fallback_route::Route;
use super::foreign;
use super::lock::{Held, SessionLock, Within};
use super::native::{self, Native};
use super::outcome::Outcome;
use super::refusing;
use super::settings::{Budget, Settings, choice};
use super::state::{Aside, State};
use super::unwatched;
use crate::call::arguments::{Registry, Torch};
use crate::call::global_state::GlobalState;
use crate::call::knowledge::Knowledge;
use crate::executor::{Executor, Planning, UnfitPlan};
use crate::ffi::counted;
use crate::ffi::errors::{as_torch_raises, remat_error};
use crate::ffi::layout::{Impl, Layout};
use crate::ffi::torch_internals::TorchInternals;
use crate::ffi::watch::is_probed;
use crate::timeline::{MemoryKind, Recorder, Recording, Timeline};
use crate::tracking::accelerators::Accelerators;
use crate::tracking::devices::Follow;
use crate::tracking::trace::{Rooms, Trace};

/// A budget in force: a torch dispatch mode whose decisions the engine makes.
#[pyclass(frozen, subclass, module = "remat._native")]
pub struct Session {
    lock: Arc<SessionLock>,
}

impl Session {
    /// The state for a method of `remat.Run` that a program may call by mistake from within an op.
    ///
    /// # Errors
    /// `RematError`, a `RuntimeError`, from within an op: the session works with its state until the op is done.
    fn enter_outside_ops(&self, py: Python<'_>, method: &str) -> PyResult<Held<'_>> {
        self.lock.enter(py).ok_or_else(|| {
            let message = format!(
                "Run.{method}() was called from within an op, whose memory Remat is arranging: \
                 call it before or after the op"
            );
            remat_error(py, &message)
        })
    }

    /// Has an action work with the state; nothing happens from within an op.
    fn with_state<T: Default>(
        &self,
        py: Python<'_>,
        action: impl FnOnce(&mut State) -> PyResult<T>,
    ) -> PyResult<T> {
        match self.lock.enter(py) {
            Some(mut held) => action(&mut held.state),
            None => Ok(T::default()),
        }
    }

    /// Has an action, which errors call `what`, work with the executor; nothing happens from within an op.
    fn with_executor(
        &self,
        py: Python<'_>,
        what: &str,
        action: impl FnOnce(&mut Executor) -> PyResult<()>,
    ) -> PyResult<()> {
        self.with_state(py, |state| {
            state.set_current(what);
            state.executor.drain_deaths(py)?;
            action(&mut state.executor)
        })
    }
}

#[pymethods]
impl Session {
    /// A session with a list of budgets (device name, device, bytes or None), the first of which is reported. `layout`
    /// holds the offsets that the probe found. In an arena, memory has addresses once
    /// [`enter_arena`](Self::enter_arena) was called.
    #[new]
    #[pyo3(signature = (torch_internals, layout, budgets, settings))]
    fn new(
        torch_internals: &Bound<'_, PyAny>,
        layout: (usize, usize),
        budgets: Vec<Budget<'_>>,
        settings: Settings,
    ) -> PyResult<Session> {
        let py = torch_internals.py();
        if budgets.is_empty() {
            return Err(PyValueError::new_err("a session needs a budget"));
        }
        let layout = Layout {
            data_ptr: layout.0,
            guard: layout.1,
        };
        let names = || budgets.iter().map(|(name, _, _)| name.clone());
        let trace = match &settings.trace {
            Some(path) => Some(Trace::create(path, &names().collect::<Vec<_>>())?),
            None => None,
        };
        let internals = TorchInternals::of(torch_internals, layout)?;
        let engine = Engine::new(settings.config(&budgets));
        let global_state = GlobalState::of(torch_internals)?;
        let accelerators = Accelerators::of(torch_internals)?;
        let mut executor = Executor::new(py, engine, internals, global_state, accelerators, trace)?;
        for (i, (name, device, bytes)) in budgets.iter().enumerate() {
            executor.device_id(name, device)?;
            executor.set_given(DeviceId(i as u8), *bytes);
        }
        executor.unbounded = budgets.iter().all(|(_, _, bytes)| bytes.is_none());
        executor.follow = settings.follow;
        executor.keeps = settings.natively && is_probed();
        // Where recomputing is limited no step is tried without its plan.
        let timed = settings.costs == Costs::Measured && settings.thrash_limit.is_none();
        if settings.plans && !executor.unbounded {
            let planning = Planning::new(settings.seed, settings.plan_files, timed);
            executor.planning = Some(planning.map_err(PyValueError::new_err)?);
            executor.load_plans(executor.unfit_at_first())?;
        }
        let torch = Torch::of(torch_internals)?;
        let smallest = budgets.iter().filter_map(|b| b.2).min().unwrap_or(0);
        // DTR's prototype skips small storages; ours are pinned, so that a kept loss value does not keep
        // a step's lineage. A millionth of the budget each. Traces are simulated in far smaller budgets, where
        // only single numbers are as small.
        let tiny = (smallest >> 20).min(if settings.trace.is_some() { 8 } else { 4096 });
        // Nothing after this fails: a session that could not begin would keep it from those that follow.
        let knowledge = match executor.follow {
            Follow::Fixed => Knowledge::take(&mut executor.devices),
            // The first op on an accelerator has to be one on a device not seen before.
            Follow::Accelerator => Knowledge::default(),
        };
        let mut state = State::new(executor, torch, knowledge, tiny);
        state.costs = settings.costs;
        state.always_recorded = settings.always_recorded.unwrap_or(u64::MAX);
        if settings.always_recorded.is_some() && state.executor.trace.is_none() {
            state.executor.engine.forgo_records();
        }
        Ok(Session {
            lock: Arc::new(SessionLock::of(state)),
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
        let lock = &slf.get().lock;
        let (redispatch, dropped) = match lock.enter(py) {
            None => return Ok(func.call(args, kwargs)?.unbind()),
            Some(mut held) => match held.state.dispatch(func, args, kwargs)? {
                Outcome::Done(result) => return Ok(result),
                Outcome::Declined => {
                    let left = &held.state.executor.internals.left_to_subclass;
                    let left = left.clone_ref(py);
                    drop(held);
                    return left.call1(py, (func, args, kwargs));
                }
                Outcome::Foreign(op) => {
                    drop(held);
                    return foreign::run(lock, *op, args, kwargs).map(Bound::unbind);
                }
                Outcome::Redispatch => {
                    let internals = &held.state.executor.internals;
                    (
                        internals.redispatch.clone_ref(py),
                        internals.own_frames_dropped.clone_ref(py),
                    )
                }
            },
        };
        match redispatch.bind(py).call1((slf, func, args, kwargs)) {
            Ok(result) => Ok(result.unbind()),
            Err(e) => Err(as_torch_raises(dropped.bind(py), e)),
        }
    }

    /// Has storages tell of their death themselves, which needs no Python objects of them.
    fn watch_storages(&self, py: Python<'_>) {
        if let Some(mut held) = self.lock.enter(py) {
            held.state.executor.storages.watch();
        }
    }

    /// Has ops of this thread come to the session natively from here on.
    fn enter_native(slf: &Bound<'_, Self>, torch_internals: &Bound<'_, PyAny>) -> PyResult<()> {
        let mode = slf.clone().into_any().unbind();
        counted::end();
        Route::forget_calls();
        unwatched::hope();
        refusing::set_up();
        native::enter(Native::new(slf.get().lock.clone(), mode, torch_internals)?);
        Ok(())
    }

    /// Registers a storage that exists already (parameters, data) and counts its bytes.
    fn adopt(&self, storage: &Bound<'_, PyAny>) -> PyResult<()> {
        let what = "adopting tensors that exist already";
        self.with_executor(storage.py(), what, |executor| {
            executor.resolve(storage).map(|_| ())
        })
    }

    /// Makes room for a storage of so many bytes on the device of `like`, which is about to be made without an op.
    fn make_room(&self, like: &Bound<'_, PyAny>, bytes: u64, what: &str) -> PyResult<()> {
        let py = like.py();
        self.with_executor(py, what, |executor| {
            let Some(device) = executor.device_of(like)? else {
                return Ok(());
            };
            executor.despite_garbage(py, (bytes, device), |executor| {
                executor.make_room(py, bytes, device)
            })
        })
    }

    /// Makes a storage resident for good, because its bytes are about to be used out of the session's sight.
    fn expose(&self, storage: &Bound<'_, PyAny>) -> PyResult<()> {
        let (py, what) = (storage.py(), "sharing a tensor's memory");
        self.with_executor(py, what, |executor| match executor.storages.find(storage) {
            Some(id) => executor.pin_in_place(py, id),
            None => Ok(()),
        })
    }

    /// Notes that the program called a function that changes settings of torch. It may do so from within an op.
    fn settings_changed(&self) {
        self.lock.settings_changed.store(true, Ordering::Release);
    }

    /// Prepares for a call that resizes a storage and that torch does not dispatch: tensors computed from its bytes are
    /// made independent of them. Returns whether the caller must call [`after_resize`](Self::after_resize).
    ///
    /// Within an op this can be done only for storages that the op declares to write. For other storages of the session
    /// it raises, before anything is lost.
    fn before_resize(&self, storage: &Bound<'_, PyAny>, bytes: u64, known: bool) -> PyResult<bool> {
        let py = storage.py();
        let Some(mut held) = self.lock.enter(py) else {
            if known && !Within::writes(Impl::of(storage)?.address()) {
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

    /// Takes a storage in anew that was resized.
    fn after_resize(&self, storage: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = storage.py();
        self.with_state(py, |state| match state.executor.storages.find(storage) {
            Some(id) => state.check_size(py, id).map(|_| ()),
            None => Ok(()),
        })
    }

    /// Writes the run's plans where none was made. Returns what went wrong with files of plans, a line each.
    fn close_plans(&self, py: Python<'_>) -> Vec<String> {
        let held = self.lock.enter(py);
        let planning =
            held.and_then(|mut held| held.state.executor.planning.as_mut().map(Planning::close));
        planning.unwrap_or_default()
    }

    /// Makes every live storage resident and usable, and ends the session's decisions.
    fn restore(&self, py: Python<'_>) -> PyResult<()> {
        self.with_state(py, |state| state.restore(py))
    }

    /// Starts placing tensors in the allocator's arena, which was opened with so many bytes.
    fn enter_arena(&self, py: Python<'_>, bytes: u64) -> PyResult<()> {
        self.with_state(py, |state| {
            state.enter_arena(py, bytes)?;
            evictor::register(Some(self.lock.clone()));
            Ok(())
        })
    }

    /// Stops making room in the arena, which is about to be closed.
    fn leave_arena(&self, py: Python<'_>) {
        if let Some(mut held) = self.lock.enter(py) {
            held.state.leave_arena();
        }
        evictor::register(None);
    }

    /// Goes on in the child of a fork, where nothing is evicted any more and evicted storages are brought back when
    /// they are touched. Returns false if another thread of the parent was amid an op: then the state is unknown.
    fn forked(&self, py: Python<'_>) -> PyResult<bool> {
        let Some(mut state) = self.lock.enter_child() else {
            return Ok(false);
        };
        let executor = &mut state.executor;
        executor.forked = true;
        counted::end();
        executor.tell_untold();
        // The file is the parent's: the bytes buffered here must not be written twice.
        std::mem::forget(executor.trace.take());
        executor.storages.timeline = None;
        executor.arena = None;
        if let Some(planning) = executor.planning.take() {
            planning.leave();
        }
        executor.engine.leave_steps();
        executor.accelerators.leave();
        for device in 0..executor.devices.len() {
            let lifted = executor.engine.set_budget(DeviceId(device as u8), None);
            lifted.map_err(|e| executor.refusal(py, &e))?;
        }
        Ok(true)
    }

    /// Changes the budget of a device.
    ///
    /// # Errors
    /// `RematError` from within an op, whose memory was arranged for the budget before.
    fn set_budget(&self, py: Python<'_>, device: u8, bytes: Option<u64>) -> PyResult<()> {
        let mut held = self.enter_outside_ops(py, "set_budget")?;
        let executor = &mut held.state.executor;
        executor.current = "changing the budget".into();
        if executor.unbounded && bytes.is_some() {
            return Err(PyValueError::new_err(
                "a run that was started without a budget cannot be given one",
            ));
        }
        unwatched::hope();
        executor.drain_deaths(py)?;
        let before = executor.given(DeviceId(device));
        executor.set_given(DeviceId(device), bytes);
        let left = bytes.map(|bytes| executor.left_of(bytes, DeviceId(device)));
        let changed = executor.engine.set_budget(DeviceId(device), left);
        let changed = changed.map_err(|e| executor.refusal(py, &e));
        changed.inspect_err(|_| executor.set_given(DeviceId(device), before))?;
        // A budget below that of a plan that was given leaves it all to the policy.
        executor.load_plans(UnfitPlan::Left)?;
        executor.perform(py)?;
        executor.collect();
        Ok(())
    }

    /// Counters of the run.
    ///
    /// # Errors
    /// `RematError` from within an op, while the counters change.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let mut held = self.enter_outside_ops(py, "stats")?;
        held.state.executor.drain_deaths(py)?;
        let lock = &self.lock;
        let aside = Aside {
            passed: lock.passed.load(Ordering::Relaxed),
            unwatched: lock.unwatched.load(Ordering::Relaxed),
            watching: lock.watch.nanoseconds(),
        };
        held.state.stats(py, &aside)
    }

    /// Tells the engine that a step of the program begins.
    ///
    /// # Errors
    /// `RematError` from within an op.
    fn mark_step(&self, py: Python<'_>) -> PyResult<()> {
        let mut held = self.enter_outside_ops(py, "step")?;
        let executor = &mut held.state.executor;
        executor.engine.mark_step();
        if let Some(timeline) = &executor.storages.timeline {
            timeline.tell(Recorder::mark_step);
        }
        Ok(())
    }

    /// Tells the engine that a step of the program may begin. Amid an op none does.
    fn may_begin_step(&self, py: Python<'_>) {
        if let Some(mut held) = self.lock.enter_as_it_is(py) {
            held.state.executor.engine.may_begin_step();
        }
    }

    /// Has a recording made of the run. `site` and `has_optimizers` are as in [`Timeline`].
    fn record_timeline(
        &self,
        py: Python<'_>,
        recording: &Recording,
        site: Py<PyAny>,
        has_optimizers: Py<PyAny>,
    ) {
        if let Some(mut held) = self.lock.enter(py) {
            let timeline = Timeline::of(recording, site, has_optimizers);
            held.state.executor.storages.timeline = Some(timeline);
        }
    }

    /// Notes in the timeline that storages are parameters.
    fn note_parameters(&self, py: Python<'_>, storages: Vec<Bound<'_, PyAny>>) {
        let Some(held) = self.lock.enter(py) else {
            return;
        };
        let table = &held.state.executor.storages;
        for id in storages.iter().filter_map(|storage| table.find(storage)) {
            table.note_kind(id, MemoryKind::Parameter);
        }
    }

    /// Makes constants of what an optimizer keeps, but for storages that the budget has no room for, and notes in the
    /// timeline what they are.
    fn keep_state(&self, py: Python<'_>, storages: Vec<Bound<'_, PyAny>>) -> PyResult<()> {
        self.with_state(py, |state| {
            let executor = &mut state.executor;
            executor.drain_deaths(py)?;
            for storage in &storages {
                if let Some(id) = executor.storages.find(storage) {
                    executor.storages.note_kind(id, MemoryKind::OptimizerState);
                    executor.pin_if_possible(py, id)?;
                }
            }
            Ok(())
        })
    }

    /// Records steps that repeat from now on.
    fn measure_steps(&self, py: Python<'_>) {
        if let Some(mut held) = self.lock.enter(py) {
            held.state.executor.measure_steps();
        }
    }

    /// Has the trace hold what a floor is sought in. Bytes beside inputs and outputs are those that ops took, or those
    /// that were announced.
    fn trace_floor(&self, rooms: &Bound<'_, PyAny>) -> PyResult<()> {
        let values = [("taken", Rooms::Taken), ("announced", Rooms::Announced)];
        let (py, rooms) = (rooms.py(), choice("rooms", rooms, &values)?);
        if let Some(mut held) = self.lock.enter(py) {
            held.state.executor.trace_floor(rooms);
        }
        Ok(())
    }

    /// Ops of the recorded step that takes most memory, its bytes at rest, and whether the trace holds the run until it
    /// was known; the step is written into a file. `None` if none was recorded.
    ///
    /// # Errors
    /// `OSError` if the file cannot be written.
    fn write_measured(
        &self,
        py: Python<'_>,
        path: PathBuf,
    ) -> PyResult<Option<(usize, u64, bool)>> {
        self.with_state(py, |state| {
            let step = state.executor.write_measured(&path)?;
            Ok(step.map(|step| (step.ops, step.at_rest, step.traced)))
        })
    }

    /// Notes a name in the trace.
    ///
    /// # Errors
    /// `RematError` from within an op: the trace has whole ops, and no place amid one.
    fn mark(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        let mut held = self.enter_outside_ops(py, "mark")?;
        match &mut held.state.executor.trace {
            Some(trace) => {
                trace.mark(name);
                trace.tell_failure()
            }
            None => Ok(()),
        }
    }
}
