//! Everything that a session owns, behind one lock.

use std::ffi::CString;
use std::sync::Arc;
use std::time::Instant;

use pyo3::exceptions::PyRuntimeWarning;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use remat_core::{Bytes, Counters};

use super::bodies::Bodies;
use super::buffers::Buffers;
use super::costs::Costs;
use super::families::Families;
use super::forms::{Candidate, Forms};
use super::lent::Lent;
use super::picking::Picking;
use super::steady::Steady;
use super::thrashing::Thrashing;
use crate::call::arguments::Torch;
use crate::call::arity::Arity;
use crate::call::knowledge::Knowledge;
use crate::executor::Executor;
use crate::ffi::arena::Arena;
use crate::ffi::gil::Attach;

/// The counts of ops that did not enter the session.
pub(super) struct Aside {
    /// Ops that made views.
    pub(super) passed: u64,
    /// Ops that ran while nobody watched.
    pub(super) unwatched: u64,
    /// Nanoseconds that watching ops took natively.
    pub(super) watching: u64,
}

/// The state of a session.
pub(super) struct State {
    pub(super) executor: Executor,
    pub(super) torch: Torch,
    pub(super) knowledge: Knowledge,
    pub(super) costs: Costs,
    /// Storages of so many bytes or fewer are pinned.
    pub(super) tiny: u64,
    /// Foreign ops under way, which others do not wait for.
    pub(super) bodies: Bodies,
    /// This state, while it is lent to whoever makes room for the op that runs.
    pub(super) lent: Arc<Lent<State>>,
    /// Forms of calls that need no Python, by key.
    pub(super) known: Forms,
    /// The same of calls that give blank memory its first value.
    pub(super) filling: Forms,
    /// The families of known forms.
    pub(super) families: Families,
    /// Known forms of calls that pick numbers by a mask.
    pub(super) picking: Picking,
    /// So many of the run's first ops are recorded, however [little](Self::needs_no_record) it needs.
    pub(super) always_recorded: u64,
    /// Buffers for calls of known forms, one of which is under way at a time.
    pub(super) buffers: Buffers,
    /// The call that is on its way through Python and may make its form known.
    pub(super) candidate: Option<Candidate>,
    /// The description of the op that is on its way through Python, if it came natively.
    pub(super) arity: Option<&'static Arity>,
    /// Ops that the program ran, but for those [aside](Aside).
    pub(super) ops: u64,
    /// Calls that reached the session through Python.
    pub(super) through_python: u64,
    pub(super) thrashing: Thrashing,
    pub(super) steady: Steady,
    pub(super) started: Instant,
    /// The engine's counters when the budget was left.
    pub(super) counters_at_end: Option<Counters>,
    /// Bytes in use in the arena before the op that runs and is measured.
    pub(super) in_use_before: Option<Bytes>,
}

impl AsMut<Executor> for State {
    fn as_mut(&mut self) -> &mut Executor {
        &mut self.executor
    }
}

impl State {
    pub(super) fn new(executor: Executor, torch: Torch, knowledge: Knowledge, tiny: u64) -> State {
        State {
            executor,
            torch,
            knowledge,
            costs: Costs::Measured,
            tiny,
            bodies: Bodies::default(),
            lent: Arc::new(Lent::none()),
            known: Forms::default(),
            filling: Forms::default(),
            families: Families::default(),
            picking: Picking::default(),
            always_recorded: u64::MAX,
            buffers: Buffers::default(),
            through_python: 0,
            candidate: None,
            arity: None,
            ops: 0,
            thrashing: Thrashing::new(),
            steady: Steady::default(),
            started: Instant::now(),
            counters_at_end: None,
            in_use_before: None,
        }
    }

    /// Runs an op. If the arena is exhausted meanwhile, the thread that allocates may evict.
    pub(super) fn lending<R>(&mut self, gil: impl Attach, op: impl FnOnce() -> R) -> R {
        if self.executor.arena.is_none() {
            return op();
        }
        let lent = self.lent.clone();
        lent.lending(gil, self, op)
    }

    /// Sets the name of the op that is being prepared, for errors.
    pub(super) fn set_current(&mut self, name: &str) {
        self.executor.current.clear();
        self.executor.current.push_str(name);
    }

    /// An op came. Warns once where the run thrashes.
    ///
    /// # Errors
    /// The warning, where the program turns warnings into errors.
    #[inline]
    pub(super) fn watch_for_thrashing(&mut self, gil: impl Attach) -> PyResult<()> {
        if !self.thrashing.is_time() {
            return Ok(());
        }
        let (acted, executor) = (self.acted(), &self.executor);
        let given = executor.given(executor.budget_device);
        let most = executor.storages.most_held();
        match self.thrashing.look(acted, given, most) {
            Some(message) => gil.attach(|py| warn(py, &message)),
            None => Ok(()),
        }
    }

    /// Nanoseconds spent on replays and decisions.
    pub(super) fn acted(&self) -> u64 {
        self.executor.replay_ns + self.executor.engine.planning_time()
    }

    /// Most bytes of the arena that were in use at a time.
    pub(super) fn high_water(&self) -> u64 {
        let arena = self.executor.arena.as_ref();
        arena.map_or(0, Arena::high_water)
    }

    /// Counters of the run.
    pub(super) fn stats<'py>(
        &self,
        py: Python<'py>,
        aside: &Aside,
    ) -> PyResult<Bound<'py, PyDict>> {
        let executor = &self.executor;
        let (engine, budget_device) = (&executor.engine, executor.budget_device);
        let c = self.counters_at_end.unwrap_or_else(|| engine.counters());
        let d = PyDict::new(py);
        d.set_item("budget", executor.given(budget_device))?;
        d.set_item("peak", executor.ledger.peak(budget_device))?;
        d.set_item("used", executor.ledger.used(budget_device))?;
        d.set_item("engine_memory", engine.memory(budget_device).0)?;
        d.set_item("evictions", c.evictions)?;
        d.set_item("recomputed", c.replays)?;
        d.set_item("ops", self.ops + aside.passed + aside.unwatched)?;
        d.set_item("unwatched", aside.unwatched)?;
        d.set_item("through_python", self.through_python)?;
        d.set_item("seconds", self.started.elapsed().as_secs_f64())?;
        d.set_item("recompute_seconds", executor.replay_ns as f64 / 1e9)?;
        d.set_item("decide_seconds", engine.planning_time() as f64 / 1e9)?;
        d.set_item("watch_seconds", aside.watching as f64 / 1e9)?;
        d.set_item("records", executor.records.iter().flatten().count())?;
        d.set_item("storages", executor.storages.all().count())?;
        d.set_item("shortages", c.shortages)?;
        d.set_item("free_after", c.free_after)?;
        d.set_item("most_free_after", c.most_free_after)?;
        d.set_item("moved_bytes", c.moved_bytes)?;
        d.set_item("searches", c.searches)?;
        d.set_item("metadata_accesses", c.metadata_accesses)?;
        d.set_item("search_seconds", engine.search_time() as f64 / 1e9)?;
        d.set_item("evicted_bytes", c.evicted_bytes)?;
        d.set_item("unused_evicted_bytes", c.unused_evicted_bytes)?;
        d.set_item("high_water", self.high_water())?;
        d.set_item("plan", executor.plan_stats(py)?)?;
        Ok(d)
    }
}

fn warn(py: Python<'_>, message: &str) -> PyResult<()> {
    let message = CString::new(message).unwrap_or_default(); // it has no zero byte
    PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &message, 1)
}
