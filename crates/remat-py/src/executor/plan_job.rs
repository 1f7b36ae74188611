//! The threads that plan steps, one each: first in a hurry, then as long as that is worth the time.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;

use remat_core::{Guide, Recorded};
use remat_plan::step::{Learned, PlannedStep, PlannedSteps};

use super::plan_files::PlanFiles;
use super::plan_search::{Memory, PlanSearch};
use super::plan_turns::{Turn, Turns};
use crate::ffi::thread::{NICE, give_way};

/// While steps of more ops than this are being planned, no other is.
const MOST_OPS: usize = 1 << 16;

/// The steps that are being planned, for one budget.
pub(super) struct Jobs {
    shared: Arc<Shared>,
    send: mpsc::Sender<Found>,
    found: mpsc::Receiver<Found>,
}

/// Shared by the threads.
struct Shared {
    turns: Turns,
    /// Something was found since the last look.
    news: AtomicBool,
    /// The ops of the steps that are being planned.
    ops: AtomicUsize,
    files: PlanFiles,
    /// The plans of the run.
    plans: Mutex<PlannedSteps>,
}

/// Something that a thread found.
pub(super) enum Found {
    /// The first plan of a step.
    First(Guide),
    /// A plan to follow in the place of an earlier one.
    Better(Guide),
    /// There is no plan.
    Nothing,
    /// Something went wrong with a file; in one line.
    Trouble(String),
}

impl Drop for Jobs {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Jobs {
    /// None yet, beside these plans.
    pub(super) fn new(files: PlanFiles, plans: PlannedSteps) -> Jobs {
        let (send, found) = mpsc::channel();
        let shared = Shared {
            turns: Turns::new(),
            news: AtomicBool::new(false),
            ops: AtomicUsize::new(0),
            files,
            plans: Mutex::new(plans),
        };
        Jobs {
            shared: Arc::new(shared),
            send,
            found,
        }
    }

    /// Plans a step on a thread of its own, which needs nothing of Python.
    pub(super) fn start(
        &self,
        recorded: Recorded,
        memory: Memory,
        seed: u64,
    ) -> std::io::Result<()> {
        let under_way = UnderWay::new(&self.shared, recorded.signatures.len());
        let thread = PlannerThread {
            memory,
            seed,
            send: self.send.clone(),
            under_way,
        };
        let run = move || {
            give_way(NICE);
            thread.run(&recorded);
        };
        thread::Builder::new()
            .name("remat-plan".into())
            .spawn(run)?;
        Ok(())
    }

    /// All that was found since the last call.
    #[inline]
    pub(super) fn take(&self) -> impl Iterator<Item = Found> + '_ {
        let news = &self.shared.news;
        let news = news.load(Ordering::Relaxed) && news.swap(false, Ordering::Acquire);
        news.then(|| self.found.try_iter()).into_iter().flatten()
    }

    /// Ends planning.
    pub(super) fn stop(&self) {
        self.shared.turns.stop();
    }

    /// Whether a step is being planned.
    pub(super) fn are_under_way(&self) -> bool {
        self.ops() > 0
    }

    /// Whether one more step may be planned.
    pub(super) fn may_start(&self) -> bool {
        self.ops() <= MOST_OPS
    }

    fn ops(&self) -> usize {
        self.shared.ops.load(Ordering::Acquire)
    }

    /// The plans of the run.
    pub(super) fn plans(&self) -> MutexGuard<'_, PlannedSteps> {
        self.shared.plans()
    }
}

impl Shared {
    fn plans(&self) -> MutexGuard<'_, PlannedSteps> {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A step of so many ops is being planned, until this is dropped.
struct UnderWay {
    shared: Arc<Shared>,
    ops: usize,
}

impl UnderWay {
    fn new(shared: &Arc<Shared>, ops: usize) -> UnderWay {
        shared.ops.fetch_add(ops, Ordering::Relaxed);
        UnderWay {
            shared: shared.clone(),
            ops,
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        // What was found is told by now.
        self.shared.ops.fetch_sub(self.ops, Ordering::Release);
    }
}

struct PlannerThread {
    memory: Memory,
    seed: u64,
    send: mpsc::Sender<Found>,
    under_way: UnderWay,
}

impl PlannerThread {
    fn run(self, recorded: &Recorded) {
        let learned = match &self.memory {
            Memory::Counted { keeps: true, .. } => Learned::new(recorded).keeping(),
            Memory::Counted { keeps: false, .. } => Learned::new(recorded),
            Memory::Arena(_) => Learned::in_arena(recorded),
        };
        let turns = &self.shared().turns;
        let Some(mut turn) = turns.take(0) else {
            return;
        };
        let mut search = PlanSearch::new(&learned, recorded, &self.memory, self.seed);
        let mut found: fn(Guide) -> Found = Found::First;
        loop {
            if let Some(step) = search.go_on(&turn) {
                self.shared().plans().add(step.clone());
                self.tell(found(step.guide));
                found = Found::Better;
            }
            if search.is_over() {
                break;
            }
            drop(turn);
            let Some(next) = turns.take(search.parts_done()) else {
                return;
            };
            turn = next;
        }
        match search.best() {
            Some(step) => self.keep(step, &turn),
            None => self.tell(Found::Nothing),
        }
    }

    /// Keeps the last plan in files, of which no other thread writes meanwhile.
    fn keep(&self, step: PlannedStep, turn: &Turn<'_>) {
        // A search that was stopped is for a budget that was changed or left.
        if turn.is_stopped() {
            return;
        }
        let plans = {
            let mut plans = self.shared().plans();
            // More may be known of its bound.
            plans.add(step.clone());
            plans.clone()
        };
        let files = &self.shared().files;
        let kept = files.keep(&plans.device, plans.budget_bytes, &step);
        for trouble in [kept, files.write_out(&plans)] {
            if let Err(trouble) = trouble {
                self.tell(Found::Trouble(trouble));
            }
        }
    }

    fn shared(&self) -> &Shared {
        &self.under_way.shared
    }

    fn tell(&self, found: Found) {
        // Nobody listens any more when the budget was left meanwhile.
        let _ = self.send.send(found);
        self.shared().news.store(true, Ordering::Release);
    }
}

/// A step of so many layers and their gradients, recorded within a third of what it takes, and that budget.
#[cfg(test)]
pub(super) fn recorded(layers: u64) -> (Recorded, remat_core::Bytes) {
    use remat_core::*;

    fn run(engine: &mut Engine, inputs: &[TensorId], number: u64) -> TensorId {
        // Sizes and times of no order: of these no search finds the best plan soon.
        let size = 100 + number * 7919 % 101;
        let spec = OpSpec {
            inputs,
            outputs: &[Output::Fresh {
                bytes: Bytes(size),
                device: DeviceId(0),
            }],
            workspace: Bytes(0),
            workspace_device: DeviceId(0),
            replay: Replay::Allowed,
        };
        let op = engine.begin(&spec).expect("room");
        let report = Finished {
            cost: Cost(1000 + number * 104_729 % 1009),
            bytes: None,
        };
        engine.finish(op, &report).expect("an op that was begun");
        engine.outputs(op)[0]
    }

    let budget = Bytes(layers * 50 + 400);
    let mut engine = Engine::new(Config {
        budgets: vec![Some(budget)],
        ..Config::default()
    });
    engine.learn_steps(DeviceId(0));
    let weights = engine.constant(Bytes(10), DeviceId(0)).expect("room");
    loop {
        let mut made = vec![run(&mut engine, &[weights], 0)];
        for layer in 1..layers {
            let before = made[made.len() - 1];
            made.push(run(&mut engine, &[weights, before], layer));
        }
        let mut gradient = run(&mut engine, &[weights], layers);
        while let Some(layer) = made.pop() {
            let next = run(&mut engine, &[gradient, layer], made.len() as u64);
            for gone in [gradient, layer] {
                engine.release(gone).expect("a reference");
            }
            gradient = next;
        }
        engine.release(gradient).expect("a reference");
        engine.collected();
        if let Some(recorded) = engine.recorded_step() {
            return (recorded, budget);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_planned_beside_one_another() {
        let files = PlanFiles::default();
        let jobs = Jobs::new(files, PlannedSteps::new("cpu", 1));
        let mut signatures = Vec::new();
        for layers in [20, 30] {
            let (recorded, budget) = recorded(layers);
            signatures.push(recorded.signatures.clone());
            let memory = Memory::Counted {
                budget,
                keeps: false,
            };
            jobs.start(recorded, memory, 1).expect("a thread");
        }
        let mut found = Vec::new();
        while found.len() < 2 || jobs.are_under_way() {
            for news in jobs.take() {
                match news {
                    Found::First(guide) => found.push(guide.signatures().to_vec()),
                    Found::Better(_) => {}
                    Found::Nothing => panic!("no plan"),
                    Found::Trouble(trouble) => panic!("{trouble}"),
                }
            }
            thread::yield_now();
        }
        found.sort();
        signatures.sort();
        assert_eq!(found, signatures);
        assert_eq!(jobs.plans().steps.len(), 2);
    }
}
