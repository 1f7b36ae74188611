//! The thread that plans a step: first in a hurry, then as long as that is worth the time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use remat_core::Recorded;
use remat_plan::step::{Learned, PlannedStep, PlannedSteps};

use super::plan_files::PlanFiles;
use super::plan_search::{Memory, PlanSearch};
use crate::ffi::thread::{NICE, give_way};

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
            give_way(NICE);
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
        let stopped = self.stopped.clone();
        let mut search = PlanSearch::new(&learned, recorded, &self.memory, self.seed, &stopped);
        for better in &mut search {
            self.tell(Found::Plan(better));
        }
        match search.best() {
            Some(step) => self.keep(step),
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
