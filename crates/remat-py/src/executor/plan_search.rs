//! The search for a plan of one step, part by part: what a part has found is followed while the next one goes on.

use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::thread;
use std::time::{Duration, Instant};

use remat_core::{Bytes, Guide, Places, Recorded};
use remat_plan::step::{ArenaInUse, Learned, PlannedStep, Progress, Search, StepError, StepPlan};
use remat_sim::{Budget, Program, STARTING_POLICIES};
use remat_trace::{Event, Rerun};

use super::plan_turns::Turn;
use crate::ffi::thread::{NICER, give_way, processor_time, take_what_is_spare};

/// The most processor time that a step is planned, for each 3,000 of its ops or fewer, where the plan is not far from
/// the bound by then; and in all.
const PATIENCE: Duration = Duration::from_secs(1);
const MOST_PATIENCE: Duration = Duration::from_secs(10);
/// Where the parts of the search end, as parts of that time.
const PARTS: [f64; 5] = [0.1, 0.3, 1.0, 3.0, 10.0];
/// A plan is far from the bound that is more than this part of the time of the step from it.
const FAR: f64 = 0.05;
/// A plan is good enough that is this part of the time of the step from the bound, and a later one is followed that
/// saves as much.
const NEAR: f64 = 0.001;
/// The part of the budget that a plan may take beyond it where none fits; the engine decides online what it evicts for
/// that.
const LACKING: u64 = 8;

/// So often the smallest budget with a plan is taken at its word: a short search tells it roughly.
const ROUGH: usize = 3;
/// The part of an arena that a first plan leaves for gaps between blocks.
const GAPS: u64 = 128;
/// Plans made for an arena in one part of the search, until the blocks of one fit into it.
const ARENA_PLANS: u32 = 4;
/// A search that gets less than one of so many seconds on a core has nothing to spare,
const SHARE: u32 = 25;
/// if it lacks as much as this.
const GRACE: Duration = Duration::from_millis(500);

/// The memory that a step is planned for.
pub(super) enum Memory {
    /// So many bytes of the engine's. Plans may keep results after the program let go of them if `keeps`.
    Counted { budget: Bytes, keeps: bool },
    /// With addresses.
    Arena(ArenaInUse),
}

impl Memory {
    /// The bytes that there are for the step.
    fn bytes(&self) -> Bytes {
        match self {
            Memory::Counted { budget, .. } => *budget,
            Memory::Arena(arena) => Bytes(arena.free_bytes()),
        }
    }

    /// The bytes within which a plan is sought first.
    fn bytes_at_first(&self) -> Bytes {
        match self {
            Memory::Counted { budget, .. } => *budget,
            Memory::Arena(arena) => Bytes(arena.free_bytes() - arena.free_bytes() / GAPS),
        }
    }

    /// The bytes that the blocks of a plan take beyond an arena.
    fn lacks(&self, guide: &Guide) -> u64 {
        match (self, guide.places()) {
            (Memory::Arena(arena), Some(places)) => places.bytes().saturating_sub(arena.bytes),
            _ => 0,
        }
    }
}

type Found = Result<(StepPlan, Guide), StepError>;

/// Plans of a step, each better than the one before. The first is sought in a hurry, on the thread that asks; later
/// ones with what cores have to spare, so that the program is not slower for it.
pub(super) struct PlanSearch<'a> {
    learned: &'a Learned<'a>,
    memory: &'a Memory,
    seed: u64,
    patience: Duration,
    /// Nanoseconds that are little, and that are much.
    near: u64,
    far: u64,
    /// Schedules that the next part starts with.
    known: Vec<Vec<Rerun>>,
    /// The parts that are done.
    done: usize,
    /// Processor time of the search so far.
    spent: Duration,
    /// The same, where a part ended early since another search had its turn.
    gave_way: Option<Duration>,
    /// The bytes within which the next plan is sought. In an arena they are fewer than there are, since blocks leave
    /// gaps.
    bytes: Bytes,
    /// The bound for all the bytes that there are, once it is known.
    least: Option<u64>,
    best: Option<PlannedStep>,
    /// Cores have hardly anything to spare.
    starved: bool,
}

/// A part of the search.
struct Part<'a> {
    turn: &'a Turn<'a>,
    /// Processor time of the thread when the part began, or its time was given anew.
    began: Duration,
    /// Processor time of the parts before, and at which this one ends.
    spent: Duration,
    until: Duration,
    /// On what cores have to spare: when it began, and the processor time of the thread then.
    spare: Option<(Instant, Duration)>,
}

impl Part<'_> {
    /// The processor time of the search so far.
    fn elapsed(&self) -> Duration {
        self.spent + processor_time().saturating_sub(self.began)
    }

    /// Whether a search that has taken so long took all of the part's time, gives way or is stopped.
    fn is_over(&self, elapsed: Duration) -> bool {
        elapsed >= self.until || self.is_called_off()
    }

    /// Whether the search gives way or is stopped.
    fn is_called_off(&self) -> bool {
        self.turn.is_wanted() || self.turn.is_stopped()
    }

    /// Whether cores have hardly anything to spare.
    fn is_starved(&self) -> bool {
        self.spare.is_some_and(|(since, before)| {
            lacks_its_share(processor_time().saturating_sub(before), since.elapsed())
        })
    }
}

/// Whether a thread that was to use a share of a core used much less for so long.
fn lacks_its_share(used: Duration, passed: Duration) -> bool {
    passed.saturating_sub(used * SHARE) > GRACE
}

impl<'a> PlanSearch<'a> {
    pub(super) fn new(
        learned: &'a Learned<'a>,
        recorded: &Recorded,
        memory: &'a Memory,
        seed: u64,
    ) -> PlanSearch<'a> {
        let part = |part: f64| (recorded.cost().0 as f64 * part) as u64;
        let ops = recorded.signatures.len() as u32;
        PlanSearch {
            learned,
            memory,
            seed,
            patience: (PATIENCE * ops.div_ceil(3000)).min(MOST_PATIENCE),
            near: part(NEAR),
            far: part(FAR),
            // Near the smallest budget policies thrash, in the simulator as well: that takes none of the search's time.
            known: online(learned.events(), memory.bytes()),
            done: 0,
            spent: Duration::ZERO,
            gave_way: None,
            bytes: memory.bytes_at_first(),
            least: None,
            best: None,
            starved: false,
        }
    }

    /// The best plan, with the highest bound that was found.
    pub(super) fn best(self) -> Option<PlannedStep> {
        self.best
    }

    /// How many parts are done.
    pub(super) fn parts_done(&self) -> usize {
        self.done
    }

    /// Whether there is no part more, or none is worth the time.
    pub(super) fn is_over(&self) -> bool {
        self.done == PARTS.len()
    }

    /// Searches for a part more, or until another search has its turn. Returns the plan that was found, if it saves
    /// enough beside the best one to be followed in its place.
    pub(super) fn go_on(&mut self, turn: &Turn<'_>) -> Option<PlannedStep> {
        let part = PARTS.get(self.done)?;
        let until = self.patience.mul_f64(*part).min(MOST_PATIENCE);
        let found = self.improve(until, turn);
        let gave_way = self.gave_way.take();
        self.spent = gave_way.unwrap_or(until);
        let better = self.take(found);
        let is_last = self.spent == MOST_PATIENCE || turn.is_stopped();
        if is_last || self.is_enough() {
            self.done = PARTS.len();
        } else if gave_way.is_none() {
            self.done += 1;
        }
        better
    }

    /// Goes on from the best plan, until so much processor time was spent in all.
    fn improve(&mut self, until: Duration, turn: &Turn<'_>) -> Found {
        if self.best.is_none() {
            return self.part(until, turn, None);
        }
        if !self.starved
            && let Some(found) = self.with_what_is_spare(until, turn)
            && !self.starved
        {
            return found;
        }
        give_way(NICER);
        self.part(until, turn, None)
    }

    /// Searches on a thread that runs where no other would. `None` where there cannot be another thread.
    fn with_what_is_spare(&mut self, until: Duration, turn: &Turn<'_>) -> Option<Found> {
        thread::scope(|scope| {
            let search = || {
                take_what_is_spare();
                self.part(until, turn, Some((Instant::now(), processor_time())))
            };
            let thread = thread::Builder::new().name("remat-plan".into());
            let searching = thread.spawn_scoped(scope, search).ok()?;
            Some(
                searching
                    .join()
                    .unwrap_or_else(|panic| resume_unwind(panic)),
            )
        })
    }

    /// Searches until so much processor time was spent in all; on what cores have to spare since then, by the clock and
    /// the processor time of the thread, if that is given.
    fn part(
        &mut self,
        until: Duration,
        turn: &Turn<'_>,
        spare: Option<(Instant, Duration)>,
    ) -> Found {
        let mut part = Part {
            turn,
            began: processor_time(),
            spent: self.spent,
            until,
            spare,
        };
        match self.memory {
            Memory::Counted { budget, .. } => self.nearly_within(*budget, &mut part),
            Memory::Arena(arena) => self.in_arena(arena, &mut part),
        }
    }

    /// Plans the step within a budget, or within the smallest one with a plan if that is little more. The engine can
    /// evict what no plan drops: what was made in an earlier step, for example a batch that every step reads.
    fn nearly_within(&mut self, budget: Bytes, part: &mut Part<'_>) -> Found {
        let mut found = self.within(budget, budget, part);
        for _ in 0..ROUGH {
            match found {
                Err(StepError::Budget { smallest, .. })
                    if self.may_take(smallest, budget, part) =>
                {
                    if part.elapsed() >= part.until {
                        part.began = processor_time(); // for as long again
                    }
                    found = self.within(budget, smallest, part);
                }
                _ => break,
            }
        }
        found
    }

    /// Whether to plan the step within the smallest budget that is known to have a plan, since none was found within
    /// its own. A search that ended for want of time may find one yet; a first plan does not wait for that.
    fn may_take(&self, smallest: Bytes, budget: Bytes, part: &Part<'_>) -> bool {
        let lacks = smallest.0.saturating_sub(budget.0);
        let in_time = self.best.is_none() || part.elapsed() < part.until;
        lacks <= budget.0 / LACKING && in_time && !part.is_called_off()
    }

    /// Plans the step within so many bytes of a budget, as long as that is worth the time.
    fn within(&mut self, budget: Bytes, bytes: Bytes, part: &mut Part<'_>) -> Found {
        let (mut starved, mut gave_way) = (false, None);
        let watch = &mut |progress: &Progress| {
            starved = part.is_starved();
            let elapsed = part.elapsed();
            let is_within = |nanoseconds| {
                let found = progress.recompute_ns;
                found.is_some_and(|found| found.saturating_sub(progress.bound_ns) <= nanoseconds)
            };
            let over = starved
                || part.is_over(elapsed)
                || (elapsed >= self.patience && is_within(self.far))
                || is_within(self.near);
            if over {
                gave_way = (elapsed < part.until && part.turn.is_wanted()).then_some(elapsed);
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        };
        let found = self
            .learned
            .plan_beyond(budget, bytes, self.known_first(), watch);
        self.starved |= starved;
        self.gave_way = gave_way;
        found
    }

    /// A search that starts with the schedules that are known.
    fn known_first(&self) -> Search {
        Search {
            seed: self.seed,
            known: self.known.clone(),
            ..Search::default()
        }
    }

    /// The least that a plan within so many bytes takes, in nanoseconds.
    fn bound(&self, bytes: Bytes) -> Option<u64> {
        let watch = &mut |_: &Progress| ControlFlow::Break(());
        let found = self.learned.plan(bytes, self.known_first(), watch);
        found.ok().map(|(plan, _)| plan.bound_ns)
    }

    /// Plans the step, and where its blocks lie. Where the arena does not hold them, the step is planned within fewer
    /// bytes, by as much as is missing, for as long again. If that comes to nothing, the plan that misses the fewest
    /// bytes is followed. Blocks that find no place are placed as they come.
    fn in_arena(&mut self, arena: &ArenaInUse, part: &mut Part<'_>) -> Found {
        let all = Bytes(arena.free_bytes());
        if self.least.is_none() {
            self.least = self.bound(all);
        }
        let mut best: Option<(u64, (StepPlan, Guide))> = None;
        for _ in 0..ARENA_PLANS {
            let (mut plan, guide) = match self.within(self.bytes, self.bytes, part) {
                Ok(planned) => planned,
                Err(_) if best.is_none() && self.bytes < all => {
                    self.bytes = all;
                    continue;
                }
                Err(none) if best.is_none() => return Err(none),
                Err(_) => break,
            };
            // What is the least within fewer bytes is not the least within all of them.
            plan.bound_ns = self
                .least
                .map_or(plan.cost_ns, |least| least.min(plan.bound_ns));
            if part.spare.is_some() && self.starved {
                return Ok((plan, guide));
            }
            let guide = self.learned.place(&plan, guide, arena);
            let placed = guide.places().map_or(0, Places::bytes);
            let lacks = self.memory.lacks(&guide);
            let peak = plan.peak_bytes.min(self.bytes.0);
            if lacks == 0 || part.is_over(Duration::ZERO) {
                // The next plan may take what this one leaves.
                let left = arena.bytes.saturating_sub(placed);
                self.bytes = all.min(Bytes(self.bytes.0 + left));
                return Ok((plan, guide));
            }
            self.bytes = Bytes(peak.saturating_sub(lacks.max(peak / 200)));
            if best.as_ref().is_none_or(|&(fewest, _)| lacks < fewest) {
                best = Some((lacks, (plan, guide)));
            }
            part.began = processor_time();
        }
        best.map(|(_, planned)| planned).ok_or(StepError::TooLarge)
    }

    /// Takes in what a part found. Returns it if it saves enough beside the best plan to be followed in its place.
    fn take(&mut self, found: Found) -> Option<PlannedStep> {
        let (plan, guide) = found.ok()?;
        if let Some(best) = &mut self.best {
            let lacking = self.memory.lacks(&best.guide);
            let saved = planned_ns(best).saturating_sub(plan.recompute_ns);
            let is_better = match self.memory.lacks(&guide) {
                lacks if lacks == lacking => saved > self.near,
                lacks => lacks < lacking,
            };
            if !is_better {
                best.bound_ns = best.bound_ns.max(plan.bound_ns);
                return None;
            }
        }
        self.known = vec![self.learned.reruns(&plan)];
        let step = PlannedStep::new(&plan, guide);
        self.best = Some(step.clone());
        Some(step)
    }

    /// Whether the best plan is good enough by now.
    fn is_enough(&self) -> bool {
        let enough = if self.spent < self.patience {
            self.near
        } else {
            self.far
        };
        self.best.as_ref().is_some_and(|best| {
            let least = best.bound_ns.saturating_sub(best.guide.planned().first.0);
            planned_ns(best).saturating_sub(least) <= enough
        })
    }
}

/// The time of a plan's replays, in nanoseconds.
fn planned_ns(step: &PlannedStep) -> u64 {
    step.guide.planned().replayed.0
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

#[cfg(test)]
mod tests {
    use super::super::plan_job::recorded;
    use super::super::plan_turns::Turns;
    use super::*;

    fn counted(budget: Bytes) -> Memory {
        Memory::Counted {
            budget,
            keeps: false,
        }
    }

    #[test]
    fn a_search_gives_way_to_one_of_fewer_parts_and_goes_on_later() {
        let (recorded, budget) = recorded(60);
        let memory = counted(budget);
        let (learned, turns) = (Learned::new(&recorded), Turns::new());
        let mut search = PlanSearch::new(&learned, &recorded, &memory, 1);
        let turn = turns.take(0).expect("a turn");
        assert!(search.go_on(&turn).is_some());
        drop(turn);
        assert_eq!(search.parts_done(), 1);
        let spent = search.spent;
        let turn = turns.take(1).expect("a turn");
        thread::scope(|scope| {
            scope.spawn(|| turns.take(0).is_some());
            while !turn.is_wanted() {
                thread::yield_now();
            }
            search.go_on(&turn);
            assert_eq!(search.parts_done(), 1, "the part is not over");
            assert!(!search.is_over() && search.spent > spent);
            drop(turn);
        });
        let turn = turns.take(1).expect("a turn");
        search.go_on(&turn);
        assert_eq!(search.parts_done(), 2);
    }

    #[test]
    fn a_first_plan_that_lacks_a_little_does_not_wait_for_more_time() {
        let (recorded, budget) = recorded(60);
        let memory = counted(budget);
        let (learned, turns) = (Learned::new(&recorded), Turns::new());
        let mut search = PlanSearch::new(&learned, &recorded, &memory, 1);
        let turn = turns.take(0).expect("a turn");
        let part = |until| Part {
            turn: &turn,
            began: processor_time(),
            spent: Duration::ZERO,
            until,
            spare: None,
        };
        let (over, begun) = (part(Duration::ZERO), part(Duration::MAX));
        let little = Bytes(budget.0 + budget.0 / LACKING);
        assert!(search.may_take(little, budget, &over));
        assert!(!search.may_take(Bytes(little.0 + 1), budget, &begun));
        assert!(search.go_on(&turn).is_some());
        assert!(!search.may_take(little, budget, &over));
        assert!(search.may_take(little, budget, &begun));
        turns.stop();
        assert!(
            !search.may_take(little, budget, &begun),
            "a run that ends does not wait"
        );
    }

    #[test]
    fn a_search_lacks_its_share_after_a_while() {
        let seconds = Duration::from_secs;
        assert!(!lacks_its_share(Duration::ZERO, GRACE));
        assert!(!lacks_its_share(seconds(1), seconds(25)));
        assert!(lacks_its_share(seconds(1), seconds(26)));
    }
}
