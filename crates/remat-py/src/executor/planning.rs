//! Steps planned in the background: the engine records one, a thread plans it, and the engine follows the plan.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{mpsc, Arc};
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use remat_core::{Bytes, Guide, Recorded, StepMark};
use remat_plan::step::{
    ArenaInUse, Learned, PlannedStep, PlannedSteps, Progress, Search, StepError, StepPlan,
};
use remat_sim::{Budget, Program, STARTING_POLICIES};
use remat_trace::{Event, Rerun};

use super::plan_files::PlanFiles;
use super::step_clock::StepClock;
use crate::ffi::thread::{give_way, processor_time};

/// The most processor time that a step is planned, for each 3,000 of its ops or fewer, where the plan is not far from
/// the bound; and in all.
const PATIENCE: Duration = Duration::from_secs(1);
const MOST_PATIENCE: Duration = Duration::from_secs(10);
/// A plan is far from the bound that is more than this part of the time of the step from it.
const FAR: f64 = 0.05;
/// A plan is good enough that is this part of the time of the step from the bound.
const NEAR: f64 = 0.001;

/// The plans of a run.
pub struct Planning {
    job: Option<Job>,
    seed: u64,
    files: PlanFiles,
    /// The plans to follow, and no others.
    given: Option<PlannedSteps>,
    /// The plans that are followed, with the device and the budget as the user gave it.
    plans: PlannedSteps,
    /// The clock, if it may decide whether plans stay.
    clock: Option<StepClock>,
    /// Faults of files, a line each.
    troubles: Vec<String>,
    /// Plans that were made by other runs.
    loaded: u64,
    /// Steps that were recorded.
    found: u64,
    /// Plans that were adopted.
    adopted: u64,
    /// Steps for which there is no plan.
    hopeless: u64,
}

/// A plan that was made, or why there is none, and what went wrong with files.
struct Made {
    step: Result<PlannedStep, StepError>,
    troubles: Vec<String>,
}

/// A step that is being planned.
struct Job {
    done: Arc<AtomicBool>,
    stopped: Arc<AtomicBool>,
    found: mpsc::Receiver<Made>,
}

impl Drop for Job {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
    }
}

impl Job {
    /// Plans a step on a thread of its own, which needs nothing of Python.
    fn start(
        recorded: Recorded,
        memory: Memory,
        seed: u64,
        files: PlanFiles,
        mut plans: PlannedSteps,
    ) -> std::io::Result<Job> {
        let done = Arc::new(AtomicBool::new(false));
        let stopped = Arc::new(AtomicBool::new(false));
        let (send, found) = mpsc::channel();
        let (tell, stop) = (done.clone(), stopped.clone());
        let plan = move || {
            give_way();
            let made = match &memory {
                Memory::Counted(budget) => {
                    let learned = Learned::new(&recorded);
                    plan_within(&learned, &recorded, *budget, seed, &stop)
                }
                Memory::Arena(arena) => plan_in_arena(&recorded, arena, seed, &stop),
            };
            let step = made.map(|(plan, guide)| PlannedStep::new(&plan, guide));
            let mut troubles = Vec::new();
            // A job that was stopped is of a budget that was changed or left.
            if let (Ok(step), false) = (&step, stop.load(Ordering::Relaxed)) {
                plans.add(step.clone());
                let kept = files.keep(&plans.device, plans.budget_bytes, step);
                troubles.extend(
                    [kept, files.write_out(&plans)]
                        .into_iter()
                        .filter_map(Result::err),
                );
            }
            // Nobody listens any more when the budget was left meanwhile.
            let _ = send.send(Made { step, troubles });
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

/// The memory that a step is planned for.
pub(super) enum Memory {
    /// So many bytes of the engine's.
    Counted(Bytes),
    /// With addresses.
    Arena(ArenaInUse),
}

/// Plans a step within a budget, as long as that is worth the time.
fn plan_within(
    learned: &Learned<'_>,
    recorded: &Recorded,
    budget: Bytes,
    seed: u64,
    stop: &AtomicBool,
) -> Result<(StepPlan, Guide), StepError> {
    let search = Search {
        seed,
        known: online(learned.events(), budget),
        ..Search::default()
    };
    // Near the smallest budget policies thrash, in the simulator as well: that takes none of the search's time.
    let began = processor_time();
    let ops = recorded.signatures.len() as u32;
    let patience = (PATIENCE * ops.div_ceil(3000)).min(MOST_PATIENCE);
    let part = |part: f64| (recorded.cost().0 as f64 * part) as u64;
    let (near, far) = (part(NEAR), part(FAR));
    let watch = &mut |progress: &Progress| {
        let elapsed = processor_time().saturating_sub(began);
        let late = elapsed >= patience && is_near(progress, far);
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
    learned.plan(budget, search, watch)
}

/// Plans made for an arena, until the blocks of one fit into it.
const ARENA_PLANS: u32 = 4;

/// Plans a step, and where its blocks lie. Where the arena does not hold them, the step is planned within fewer bytes,
/// by as much as is missing. If that comes to nothing, the plan that misses the fewest bytes is followed. Blocks that
/// find no place are placed as they come.
fn plan_in_arena(
    recorded: &Recorded,
    arena: &ArenaInUse,
    seed: u64,
    stop: &AtomicBool,
) -> Result<(StepPlan, Guide), StepError> {
    let learned = Learned::in_arena(recorded);
    let mut budget = arena.free_bytes();
    let mut best: Option<(u64, (StepPlan, Guide))> = None;
    for _ in 0..ARENA_PLANS {
        let (plan, guide) = match plan_within(&learned, recorded, Bytes(budget), seed, stop) {
            Ok(planned) => planned,
            Err(none) if best.is_none() => return Err(none),
            Err(_) => break,
        };
        let guide = learned.place(&plan, guide, arena);
        let bytes = guide.places().map_or(0, |places| places.bytes());
        if bytes <= arena.bytes || stop.load(Ordering::Relaxed) {
            return Ok((plan, guide));
        }
        let peak = plan.peak_bytes.min(budget);
        budget = peak.saturating_sub((bytes - arena.bytes).max(peak / 200));
        if best.as_ref().is_none_or(|&(fewest, _)| bytes < fewest) {
            best = Some((bytes, (plan, guide)));
        }
    }
    best.map(|(_, planned)| planned).ok_or(StepError::TooLarge)
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
    /// Plans with this seed, kept in these files. Those that save little are tried by the clock if `timed`, unless they
    /// were given.
    ///
    /// # Errors
    /// What is wrong with the file that was given or is to be written, in one line.
    pub fn new(seed: u64, files: PlanFiles, timed: bool) -> Result<Planning, String> {
        files.check_out()?;
        let timed = timed && files.given.is_none();
        Ok(Planning {
            clock: timed.then(StepClock::default),
            job: None,
            seed,
            given: files.given()?,
            files,
            plans: PlannedSteps::new("", 0),
            troubles: Vec::new(),
            loaded: 0,
            found: 0,
            adopted: 0,
            hopeless: 0,
        })
    }

    /// Whether steps are learned: not where a plan was given.
    pub fn learns(&self) -> bool {
        self.given.is_none()
    }

    /// Drops the plans that were followed so far and the one under way, and takes those that other runs made for a
    /// budget, in bytes as the user gave it.
    ///
    /// # Errors
    /// In one line, that the plan that was given is for another device or more bytes. None is followed then.
    pub(super) fn load(&mut self, device: &str, budget: u64) -> Result<Vec<Guide>, String> {
        self.job = None;
        self.plans = PlannedSteps::new(device, budget);
        let steps = match &self.given {
            Some(given) if given.device == device && given.budget_bytes <= budget => {
                given.steps.clone()
            }
            Some(given) => {
                return Err(format!(
                    "the plan is for {} on {}, the budget is {} on {device}: \
                     have one made for it (plan_out, --plan-out)",
                    Bytes(given.budget_bytes),
                    given.device,
                    Bytes(budget),
                ));
            }
            None => {
                let (steps, trouble) = self.files.cached(device, budget);
                self.troubles.extend(trouble);
                steps
            }
        };
        self.loaded += steps.len() as u64;
        let guides = steps.iter().map(|step| step.guide.clone()).collect();
        for step in steps {
            self.plans.add(step);
        }
        Ok(guides)
    }

    /// The process is the child of a fork, where the thread is not.
    pub fn leave(mut self) {
        std::mem::forget(self.job.take());
    }

    /// Ends planning, and writes the plans of the run where none was made. Returns what went wrong with files, a line
    /// each.
    pub fn close(&mut self) -> Vec<String> {
        // A plan may be ready that no op came to adopt.
        self.take_plan();
        self.job = None;
        if self.adopted == 0 && self.files.out.is_some() {
            self.troubles
                .extend(self.files.write_out(&self.plans).err());
        }
        std::mem::take(&mut self.troubles)
    }

    /// The plan that was made since the last call. It is adopted.
    pub(super) fn take_plan(&mut self) -> Option<Guide> {
        let job = self.job.as_ref()?;
        if !job.done.load(Ordering::Acquire) {
            return None;
        }
        let made = job.found.try_recv();
        self.job = None;
        let Ok(Made {
            step: Ok(step),
            troubles,
        }) = made
        else {
            self.hopeless += 1;
            return None;
        };
        self.troubles.extend(troubles);
        self.adopted += 1;
        self.plans.add(step.clone());
        Some(step.guide)
    }

    /// The program began, ended or left a planned step. The guide of one that ended, by its hash, and how many
    /// nanoseconds it took, if the clock may decide.
    pub(super) fn note(&mut self, mark: StepMark) -> Option<(u64, u64)> {
        self.clock.as_mut()?.note(mark)
    }

    /// Whether a step can be planned now.
    pub(super) fn is_idle(&self) -> bool {
        self.job.is_none()
    }

    /// Plans a step in the background.
    pub(super) fn start(&mut self, recorded: Recorded, memory: Memory) {
        self.found += 1;
        let (files, plans) = (self.files.clone(), self.plans.clone());
        match Job::start(recorded, memory, self.seed, files, plans) {
            Ok(job) => self.job = Some(job),
            Err(_) => self.hopeless += 1,
        }
    }

    /// Writes the counters of plans into a dictionary.
    ///
    /// # Errors
    /// Those of Python.
    pub(super) fn write(&self, d: &Bound<'_, PyDict>) -> PyResult<()> {
        d.set_item("loaded", self.loaded)?;
        d.set_item("found", self.found)?;
        d.set_item("adopted", self.adopted)?;
        d.set_item("hopeless", self.hopeless)?;
        let waits = |job: &Job| !job.done.load(Ordering::Acquire);
        d.set_item("under_way", self.job.as_ref().is_some_and(waits))?;
        let latest = self.plans.steps.last();
        let places = latest.and_then(|step| step.guide.places());
        d.set_item("placed_bytes", places.map(|places| places.bytes()))?;
        d.set_item("planned_peak", latest.and_then(|step| step.peak_bytes))?;
        d.set_item("planned_overhead", latest.and_then(planned_overhead))?;
        d.set_item("least_overhead", latest.and_then(least_overhead))
    }
}

fn planned_overhead(step: &PlannedStep) -> Option<f64> {
    let planned = step.guide.planned();
    overhead(planned.replayed.0, planned.first.0)
}

fn least_overhead(step: &PlannedStep) -> Option<f64> {
    let cost = step.guide.planned().first.0;
    overhead(step.bound_ns.saturating_sub(cost), cost)
}

/// Time of recomputing as a part of the time of ops.
pub(super) fn overhead(again: u64, cost: u64) -> Option<f64> {
    (cost > 0).then(|| again as f64 / cost as f64)
}
