//! The thread that plans a step: first in a hurry, then as long as that is worth the time.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use remat_core::{Bytes, Guide, Recorded};
use remat_plan::step::{
    ArenaInUse, Learned, PlannedStep, PlannedSteps, Progress, Search, StepError, StepPlan,
};
use remat_sim::{Budget, Program, STARTING_POLICIES};
use remat_trace::{Event, Rerun};

use super::plan_files::PlanFiles;
use crate::ffi::thread::{give_way, processor_time};

/// The most processor time that a step is planned, for each 3,000 of its ops or fewer, where the plan is not far from
/// the bound by then; and in all. What was found so far is followed before the search goes on.
const PATIENCE: Duration = Duration::from_secs(1);
const MOST_PATIENCE: Duration = Duration::from_secs(10);
/// The parts of that time after which a plan is followed. The planner gives way to the program: where that keeps all
/// cores busy, a second of processor time is ten seconds of the clock.
const PARTS: [f64; 5] = [0.1, 0.3, 1.0, 3.0, 10.0];
/// A plan is far from the bound that is more than this part of the time of the step from it.
const FAR: f64 = 0.05;
/// A plan is good enough that is this part of the time of the step from the bound, and a later one is followed that
/// saves as much.
const NEAR: f64 = 0.001;
/// The part of the budget that a plan may take beyond it where none fits; the engine decides online what it evicts for
/// that.
const LACKING: u64 = 16;
/// Plans made for an arena, until the blocks of one fit into it.
const ARENA_PLANS: u32 = 4;

/// A step that is being planned.
pub(super) struct Job {
    /// Something was found since the last look.
    news: Arc<AtomicBool>,
    ended: Arc<AtomicBool>,
    stopped: Arc<AtomicBool>,
    found: mpsc::Receiver<Found>,
}

/// Something that the thread found.
pub(super) enum Found {
    /// A plan to follow.
    Plan(PlannedStep),
    /// None comes after the latest, and more may be known of its bound.
    Last(PlannedStep),
    /// There is no plan.
    Nothing,
    /// Something went wrong with a file; in one line.
    Trouble(String),
}

/// The memory that a step is planned for.
pub(super) enum Memory {
    /// So many bytes of the engine's. Plans may keep results after the program let go of them if `keeps`.
    Counted { budget: Bytes, keeps: bool },
    /// With addresses.
    Arena(ArenaInUse),
}

impl Drop for Job {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
    }
}

impl Job {
    /// Plans a step on a thread of its own, which needs nothing of Python. `plans` are those of the run so far.
    pub(super) fn start(
        recorded: Recorded,
        memory: Memory,
        seed: u64,
        files: PlanFiles,
        plans: PlannedSteps,
    ) -> std::io::Result<Job> {
        let (news, ended) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicBool::new(false)),
        );
        let stopped = Arc::new(AtomicBool::new(false));
        let (send, found) = mpsc::channel();
        let thread = PlannerThread {
            memory,
            seed,
            files,
            plans,
            send,
            news: news.clone(),
            stopped: stopped.clone(),
        };
        let end = ended.clone();
        let run = move || {
            give_way();
            thread.run(&recorded);
            end.store(true, Ordering::Release);
        };
        thread::Builder::new()
            .name("remat-plan".into())
            .spawn(run)?;
        Ok(Job {
            news,
            ended,
            stopped,
            found,
        })
    }

    /// All that was found since the last call.
    #[inline]
    pub(super) fn take(&self) -> impl Iterator<Item = Found> + '_ {
        let news = self.news.load(Ordering::Relaxed) && self.news.swap(false, Ordering::Acquire);
        news.then(|| self.found.try_iter()).into_iter().flatten()
    }

    /// Whether nothing more will be found.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}

struct PlannerThread {
    memory: Memory,
    seed: u64,
    files: PlanFiles,
    plans: PlannedSteps,
    send: mpsc::Sender<Found>,
    news: Arc<AtomicBool>,
    stopped: Arc<AtomicBool>,
}

impl PlannerThread {
    fn run(mut self, recorded: &Recorded) {
        let learned = match &self.memory {
            Memory::Counted { keeps: true, .. } => Learned::new(recorded).keeping(),
            Memory::Counted { keeps: false, .. } => Learned::new(recorded),
            Memory::Arena(_) => Learned::in_arena(recorded),
        };
        let planner = StepPlanner::new(&learned, recorded, self.seed, &self.stopped);
        // Near the smallest budget policies thrash, in the simulator as well: that takes none of the search's time.
        let mut known = online(learned.events(), self.memory.bytes());
        let began = processor_time();
        let patience = planner.patience;
        let mut best: Option<(StepPlan, PlannedStep)> = None;
        for part in PARTS {
            let until = patience.mul_f64(part).min(MOST_PATIENCE);
            let found = planner.plan(&self.memory, &known, Limits { began, until });
            match (found, &mut best) {
                (Ok((same, _)), Some((plan, step))) if !planner.saves(&same, plan) => {
                    step.bound_ns = step.bound_ns.max(same.bound_ns);
                }
                (Ok((plan, guide)), _) => {
                    known = vec![learned.reruns(&plan)];
                    let step = PlannedStep::new(&plan, guide);
                    self.tell(Found::Plan(step.clone()));
                    best = Some((plan, step));
                }
                (Err(_), _) => {}
            }
            let enough = if until < patience {
                planner.near
            } else {
                planner.far
            };
            let is_enough = best
                .as_ref()
                .is_some_and(|(plan, _)| is_within(plan, enough));
            if is_enough || until == MOST_PATIENCE || planner.is_stopped() {
                break;
            }
        }
        match best {
            Some((_, step)) => self.keep(step),
            None => self.tell(Found::Nothing),
        }
    }

    /// Keeps the last plan in files, and tells of it.
    fn keep(&mut self, step: PlannedStep) {
        // A job that was stopped is of a budget that was changed or left.
        if self.stopped.load(Ordering::Relaxed) {
            return;
        }
        self.plans.add(step.clone());
        let kept = self
            .files
            .keep(&self.plans.device, self.plans.budget_bytes, &step);
        for trouble in [kept, self.files.write_out(&self.plans)] {
            if let Err(trouble) = trouble {
                self.tell(Found::Trouble(trouble));
            }
        }
        self.tell(Found::Last(step));
    }

    fn tell(&self, found: Found) {
        // Nobody listens any more when the budget was left meanwhile.
        let _ = self.send.send(found);
        self.news.store(true, Ordering::Release);
    }
}

impl Memory {
    /// The bytes that there are for the step.
    fn bytes(&self) -> Bytes {
        match self {
            Memory::Counted { budget, .. } => *budget,
            Memory::Arena(arena) => Bytes(arena.free_bytes()),
        }
    }
}

/// How long a search goes on at most.
#[derive(Clone, Copy)]
struct Limits {
    /// The processor time of the thread when it began, and so much later.
    began: Duration,
    until: Duration,
}

impl Limits {
    /// The processor time of the search so far.
    fn elapsed(self) -> Duration {
        processor_time().saturating_sub(self.began)
    }
}

/// Whether a plan takes at most so many nanoseconds more than the bound.
fn is_within(plan: &StepPlan, nanoseconds: u64) -> bool {
    let least = plan.bound_ns.saturating_sub(plan.cost_ns);
    plan.recompute_ns.saturating_sub(least) <= nanoseconds
}

/// Plans one step.
struct StepPlanner<'a> {
    learned: &'a Learned<'a>,
    seed: u64,
    stopped: &'a AtomicBool,
    patience: Duration,
    /// Nanoseconds that are little, and that are much.
    near: u64,
    far: u64,
}

impl<'a> StepPlanner<'a> {
    fn new(
        learned: &'a Learned<'a>,
        recorded: &Recorded,
        seed: u64,
        stopped: &'a AtomicBool,
    ) -> StepPlanner<'a> {
        let part = |part: f64| (recorded.cost().0 as f64 * part) as u64;
        let ops = recorded.signatures.len() as u32;
        StepPlanner {
            learned,
            seed,
            stopped,
            patience: (PATIENCE * ops.div_ceil(3000)).min(MOST_PATIENCE),
            near: part(NEAR),
            far: part(FAR),
        }
    }

    fn plan(
        &self,
        memory: &Memory,
        known: &[Vec<Rerun>],
        limits: Limits,
    ) -> Result<(StepPlan, Guide), StepError> {
        match memory {
            Memory::Counted { budget, .. } => self.nearly_within(*budget, known, limits),
            Memory::Arena(arena) => self.in_arena(arena, known, limits),
        }
    }

    /// Plans the step within a budget, or within the smallest one with a plan if that is little more. The engine can
    /// evict what no plan drops: what was made in an earlier step, for example a batch that every step reads.
    fn nearly_within(
        &self,
        budget: Bytes,
        known: &[Vec<Rerun>],
        limits: Limits,
    ) -> Result<(StepPlan, Guide), StepError> {
        match self.within(budget, budget, known, limits) {
            // A search that ended for want of time may find a plan yet.
            Err(StepError::Budget { smallest, .. })
                if smallest.0.saturating_sub(budget.0) <= budget.0 / LACKING
                    && !self.is_over(limits.elapsed(), limits) =>
            {
                self.within(budget, smallest, known, limits)
            }
            planned => planned,
        }
    }

    /// Whether a search that has taken so long took all of its time, or was stopped.
    fn is_over(&self, elapsed: Duration, limits: Limits) -> bool {
        elapsed >= limits.until || self.is_stopped()
    }

    /// Plans the step within so many bytes of a budget, as long as that is worth the time.
    fn within(
        &self,
        budget: Bytes,
        bytes: Bytes,
        known: &[Vec<Rerun>],
        limits: Limits,
    ) -> Result<(StepPlan, Guide), StepError> {
        let search = Search {
            seed: self.seed,
            known: known.to_vec(),
            ..Search::default()
        };
        let watch = &mut |progress: &Progress| {
            let elapsed = limits.elapsed();
            let is_within = |nanoseconds| {
                let found = progress.recompute_ns;
                found.is_some_and(|found| found.saturating_sub(progress.bound_ns) <= nanoseconds)
            };
            let over = self.is_over(elapsed, limits)
                || (elapsed >= self.patience && is_within(self.far))
                || is_within(self.near);
            if over {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        };
        self.learned.plan_beyond(budget, bytes, search, watch)
    }

    /// Plans the step, and where its blocks lie. Where the arena does not hold them, the step is planned within fewer
    /// bytes, by as much as is missing, for as long again. If that comes to nothing, the plan that misses the fewest
    /// bytes is followed. Blocks that find no place are placed as they come.
    fn in_arena(
        &self,
        arena: &ArenaInUse,
        known: &[Vec<Rerun>],
        mut limits: Limits,
    ) -> Result<(StepPlan, Guide), StepError> {
        let mut budget = arena.free_bytes();
        let mut best: Option<(u64, (StepPlan, Guide))> = None;
        for _ in 0..ARENA_PLANS {
            let (plan, guide) = match self.within(Bytes(budget), Bytes(budget), known, limits) {
                Ok(planned) => planned,
                Err(none) if best.is_none() => return Err(none),
                Err(_) => break,
            };
            let guide = self.learned.place(&plan, guide, arena);
            let bytes = guide.places().map_or(0, |places| places.bytes());
            if bytes <= arena.bytes || self.is_stopped() {
                return Ok((plan, guide));
            }
            let peak = plan.peak_bytes.min(budget);
            budget = peak.saturating_sub((bytes - arena.bytes).max(peak / 200));
            if best.as_ref().is_none_or(|&(fewest, _)| bytes < fewest) {
                best = Some((bytes, (plan, guide)));
            }
            limits.began = processor_time();
        }
        best.map(|(_, planned)| planned).ok_or(StepError::TooLarge)
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Whether a plan saves enough beside another one to be followed in its place.
    fn saves(&self, plan: &StepPlan, beside: &StepPlan) -> bool {
        beside.recompute_ns.saturating_sub(plan.recompute_ns) > self.near
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
