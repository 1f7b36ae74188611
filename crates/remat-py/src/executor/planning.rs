//! Steps planned in the background: the engine records one, a thread plans it, and the engine follows the plan.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{mpsc, Arc};
use std::thread;
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::types::PyDict;
use remat_core::{Bytes, Guide, Recorded};
use remat_plan::step::{Learned, Progress, Rerun, Search, StepError, StepPlan};
use remat_sim::{Budget, Program};
use remat_trace::Event;

use super::state::Executor;

/// The longest that a step is planned, for each 3,000 of its ops or fewer; and in all.
const PATIENCE: Duration = Duration::from_secs(1);
const MOST_PATIENCE: Duration = Duration::from_secs(10);
/// Policies whose schedules a search starts with.
const POLICIES: [&str; 2] = ["dtr-anc", "dtr-eq"];
/// A plan is good enough that is this part of the time of the step from the bound.
const NEAR: f64 = 0.001;

/// The plans of a run.
#[derive(Default)]
pub struct Planning {
    job: Option<Job>,
    seed: u64,
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
            let started = Instant::now();
            let ops = recorded.signatures.len() as u32;
            let patience = (PATIENCE * ops.div_ceil(3000)).min(MOST_PATIENCE);
            let near = (recorded.cost().0 as f64 * NEAR) as u64;
            let watch = &mut |progress: &Progress| {
                let late = started.elapsed() >= patience;
                let late =
                    late && progress.recompute_ns.is_some() || started.elapsed() >= MOST_PATIENCE;
                let over = late || stop.load(Ordering::Relaxed) || is_near(progress, near);
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

/// What policies replay that are known to do well, where they meet the budget.
fn online(events: &[Event], budget: Bytes) -> Vec<Vec<Rerun>> {
    let program: Program = events.iter().collect();
    let Ok(base) = program.base() else {
        return Vec::new();
    };
    let runs = POLICIES.iter().filter_map(|name| {
        let policy = name.parse().ok()?;
        let found = program
            .reruns(&base, policy, Budget::Bytes(budget))
            .ok()??;
        let rerun = |run: &remat_sim::Rerun| Rerun {
            op: run.op,
            event: run.event,
        };
        Some(found.runs.iter().map(rerun).collect())
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

    /// What is under way and what was adopted is of another budget.
    pub fn forget(&mut self) {
        self.job = None;
        self.latest = None;
    }

    /// The process is the child of a fork, where the thread is not.
    pub fn leave(mut self) {
        std::mem::forget(self.job.take());
    }
}

impl Executor {
    /// Has steps planned, and adopts plans that are made. Called between ops.
    pub fn tend_plans(&mut self) {
        let Some(planning) = &mut self.planning else {
            return;
        };
        if let Some(job) = &planning.job {
            if !job.done.load(Ordering::Acquire) {
                return;
            }
            match job.found.try_recv() {
                Ok(Ok((plan, guide))) => {
                    planning.adopted += 1;
                    planning.latest = Some(Summary {
                        cost: plan.cost_ns,
                        recompute: plan.recompute_ns,
                        bound: plan.bound_ns,
                    });
                    self.engine.follow(guide);
                }
                _ => planning.hopeless += 1,
            }
            planning.job = None;
        }
        let Some(recorded) = self.engine.recorded_step() else {
            return;
        };
        if let Some(budget) = self.engine.budget(self.budget_device) {
            match Job::start(recorded, budget, planning.seed) {
                Ok(job) => planning.job = Some(job),
                Err(_) => planning.hopeless += 1,
            }
        }
    }

    /// Counters of plans; `None` where steps are not planned.
    pub fn plan_stats<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let Some(planning) = &self.planning else {
            return Ok(None);
        };
        let guided = self.engine.guided();
        let overhead = |time: u64, cost: u64| (cost > 0).then(|| time as f64 / cost as f64);
        let latest = planning.latest.as_ref();
        let d = PyDict::new(py);
        d.set_item("adopted", planning.adopted)?;
        d.set_item("hopeless", planning.hopeless)?;
        d.set_item("given_up", guided.given_up)?;
        let waits = |job: &Job| !job.done.load(Ordering::Acquire);
        d.set_item("under_way", planning.job.as_ref().is_some_and(waits))?;
        d.set_item("steps", guided.steps)?;
        d.set_item("ops", guided.ops)?;
        d.set_item("departures", guided.departures)?;
        d.set_item("overhead", overhead(guided.replayed.0, guided.cost.0))?;
        let planned = latest.and_then(|plan| overhead(plan.recompute, plan.cost));
        d.set_item("planned_overhead", planned)?;
        let least =
            latest.and_then(|plan| overhead(plan.bound.saturating_sub(plan.cost), plan.cost));
        d.set_item("least_overhead", least)?;
        Ok(Some(d))
    }
}
