//! Steps planned in the background: the engine records one, a thread plans it, and the engine follows the plan.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{mpsc, Arc};
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use remat_core::{Bytes, Guide, Recorded};
use remat_plan::step::{Learned, Progress, Search, StepError, StepPlan};
use remat_sim::{Budget, Program, STARTING_POLICIES};
use remat_trace::{Event, Rerun};

use crate::ffi::thread::{give_way, processor_time};

/// The most processor time that a step is planned, for each 3,000 of its ops or fewer; and in all.
const PATIENCE: Duration = Duration::from_secs(1);
const MOST_PATIENCE: Duration = Duration::from_secs(10);
/// A plan is good enough that is this part of the time of the step from the bound.
const NEAR: f64 = 0.001;

/// The plans of a run.
#[derive(Default)]
pub struct Planning {
    job: Option<Job>,
    seed: u64,
    /// Steps that were recorded.
    found: u64,
    /// Plans that were adopted.
    adopted: u64,
    /// Steps for which there is no plan.
    hopeless: u64,
    /// The plan adopted last.
    latest: Option<Summary>,
}

/// Nanoseconds of a planned step.
struct Summary {
    cost: u64,
    recompute: u64,
    bound: u64,
}

/// A step that is being planned.
struct Job {
    done: Arc<AtomicBool>,
    stopped: Arc<AtomicBool>,
    found: mpsc::Receiver<Result<(StepPlan, Guide), StepError>>,
}

impl Drop for Job {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
    }
}

impl Job {
    /// Plans a step on a thread of its own, which needs nothing of Python.
    fn start(recorded: Recorded, budget: Bytes, seed: u64) -> std::io::Result<Job> {
        let done = Arc::new(AtomicBool::new(false));
        let stopped = Arc::new(AtomicBool::new(false));
        let (send, found) = mpsc::channel();
        let (tell, stop) = (done.clone(), stopped.clone());
        let plan = move || {
            give_way();
            let ops = recorded.signatures.len() as u32;
            let patience = (PATIENCE * ops.div_ceil(3000)).min(MOST_PATIENCE);
            let near = (recorded.cost().0 as f64 * NEAR) as u64;
            let watch = &mut |progress: &Progress| {
                let elapsed = processor_time();
                let late = elapsed >= patience && progress.recompute_ns.is_some();
                let over = late
                    || elapsed >= MOST_PATIENCE
                    || stop.load(Ordering::Relaxed)
                    || is_near(progress, near);
                if over {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            };
            let learned = Learned::new(&recorded);
            let search = Search {
                seed,
                known: online(learned.events(), budget),
                ..Search::default()
            };
            // Nobody listens any more when the budget was left meanwhile.
            let _ = send.send(learned.plan(budget, search, watch));
            tell.store(true, Ordering::Release);
        };
        thread::Builder::new()
            .name("remat-plan".into())
            .spawn(plan)?;
        Ok(Job {
            done,
            stopped,
            found,
        })
    }
}

/// The replays of policies that are known to do well, where they meet the budget.
fn online(events: &[Event], budget: Bytes) -> Vec<Vec<Rerun>> {
    let program: Program = events.iter().collect();
    let Ok(base) = program.base() else {
        return Vec::new();
    };
    // One without a schedule here is left out: the search has others to start with.
    let runs = STARTING_POLICIES.iter().filter_map(|name| {
        let policy = name.parse().ok()?;
        let found = program.reruns(&base, policy, Budget::Bytes(budget));
        Some(found.ok()??.runs)
    });
    runs.collect()
}

fn is_near(progress: &Progress, nanoseconds: u64) -> bool {
    let found = progress.recompute_ns;
    found.is_some_and(|found| found.saturating_sub(progress.bound_ns) <= nanoseconds)
}

impl Planning {
    /// Plans with this seed.
    pub fn new(seed: u64) -> Planning {
        Planning {
            seed,
            ..Planning::default()
        }
    }

    /// Plans made so far, and the one under way, are of another budget.
    pub fn forget(&mut self) {
        self.job = None;
        self.latest = None;
    }

    /// The process is the child of a fork, where the thread is not.
    pub fn leave(mut self) {
        std::mem::forget(self.job.take());
    }

    /// The plan that was made since the last call. It is adopted.
    pub(super) fn take_plan(&mut self) -> Option<Guide> {
        let job = self.job.as_ref()?;
        if !job.done.load(Ordering::Acquire) {
            return None;
        }
        let found = job.found.try_recv();
        self.job = None;
        let Ok(Ok((plan, guide))) = found else {
            self.hopeless += 1;
            return None;
        };
        self.adopted += 1;
        self.latest = Some(Summary {
            cost: plan.cost_ns,
            recompute: plan.recompute_ns,
            bound: plan.bound_ns,
        });
        Some(guide)
    }

    /// Whether a step can be planned now.
    pub(super) fn is_idle(&self) -> bool {
        self.job.is_none()
    }

    /// Plans a step in the background.
    pub(super) fn start(&mut self, recorded: Recorded, budget: Bytes) {
        self.found += 1;
        match Job::start(recorded, budget, self.seed) {
            Ok(job) => self.job = Some(job),
            Err(_) => self.hopeless += 1,
        }
    }

    /// Writes the counters of plans into a dictionary.
    ///
    /// # Errors
    /// Those of Python.
    pub(super) fn write(&self, d: &Bound<'_, PyDict>) -> PyResult<()> {
        d.set_item("found", self.found)?;
        d.set_item("adopted", self.adopted)?;
        d.set_item("hopeless", self.hopeless)?;
        let waits = |job: &Job| !job.done.load(Ordering::Acquire);
        d.set_item("under_way", self.job.as_ref().is_some_and(waits))?;
        let latest = self.latest.as_ref();
        let planned = latest.and_then(|plan| overhead(plan.recompute, plan.cost));
        d.set_item("planned_overhead", planned)?;
        let least =
            latest.and_then(|plan| overhead(plan.bound.saturating_sub(plan.cost), plan.cost));
        d.set_item("least_overhead", least)
    }
}

/// Time of recomputing as a part of the time of ops.
pub(super) fn overhead(again: u64, cost: u64) -> Option<f64> {
    (cost > 0).then(|| again as f64 / cost as f64)
}
