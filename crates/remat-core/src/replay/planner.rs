//! Attempts at a goal, each without trace if it fails.

use super::belady::Belady;
use super::dtr::Dtr;
use super::goal::{Attempt, Goal, Hold, Order, Strategy};
use super::memory_need::MemoryNeeds;
use super::refusal::{Excess, error};
use super::sethi_ullman::SethiUllman;
use crate::arena::Sides;
use crate::config::{Config, ReplayOrder, ThrashLimit};
use crate::error::Error;
use crate::transaction::{State, Stop};

/// Lays out plans. Keeps the buffers of each order of replay.
pub(crate) struct Planner {
    pub(super) order: ReplayOrder,
    pub(super) thrash: ThrashLimit,
    needs: MemoryNeeds,
    dtr: Dtr,
    sethi_ullman: SethiUllman,
    belady: Belady,
}

impl Planner {
    pub(crate) fn new(config: &Config) -> Planner {
        Planner {
            order: config.order,
            thrash: config.thrash,
            needs: MemoryNeeds::default(),
            dtr: Dtr::default(),
            sethi_ullman: SethiUllman::default(),
            belady: Belady::default(),
        }
    }

    /// Lays out one way to the goal. On failure the state is left where it got stuck; the caller rolls back.
    pub(super) fn attempt(
        &mut self,
        state: &mut State,
        goal: &Goal,
        strategy: Strategy,
    ) -> Result<(), Stop> {
        let attempt = Attempt {
            goal,
            strategy,
            thrash: self.thrash,
        };
        for &input in goal.inputs() {
            state.touch(state.graph.storage_of(input));
        }
        let needs = &mut self.needs;
        match strategy.order {
            Order::Dtr => self.dtr.attempt(state, needs, &attempt),
            Order::SethiUllman => self.sethi_ullman.attempt(state, needs, &attempt),
            Order::Belady => self.belady.attempt(state, needs, &attempt),
        }
    }

    /// One attempt inside the budgets; without trace if it fails.
    pub(super) fn try_order(
        &mut self,
        state: &mut State,
        goal: &Goal,
        strategy: Strategy,
    ) -> Result<(), Stop> {
        state.journal.start();
        let result = self.attempt(state, goal, strategy);
        if result.is_ok() {
            state.journal.mark();
        } else {
            if strategy.hold == Hold::All && result != Err(Stop::Dear) {
                state.note_refused();
            }
            state.roll_back();
        }
        result
    }

    /// [`try_order`](Self::try_order) of an order that was measured and fits: in arenas placed as it was then.
    pub(super) fn try_measured(
        &mut self,
        state: &mut State,
        goal: &Goal,
        strategy: Strategy,
    ) -> Result<(), Stop> {
        state.demand.sides = Sides::Low;
        let result = self.try_order(state, goal, strategy);
        state.demand.sides = Sides::Partitioned;
        result
    }

    /// How far beyond the budgets an order goes, whatever it replays; `None` when it takes too long.
    ///
    /// # Errors
    /// A stop that no budget helps against.
    pub(super) fn measure(
        &mut self,
        state: &mut State,
        goal: &Goal,
        strategy: Strategy,
    ) -> Result<Option<Excess>, Error> {
        state.journal.start();
        state.lift_limits();
        let result = self.attempt(state, goal, strategy);
        let excess = Excess::of(state);
        state.roll_back();
        state.restore_limits();
        match result {
            Ok(()) => Ok(Some(excess)),
            Err(Stop::Short(_) | Stop::Work) => Ok(None),
            Err(stop) => Err(error(stop)),
        }
    }
}

impl State {
    /// Lays out a plan, and counts the time that it takes.
    pub(super) fn plan_timed<T>(&mut self, plan: impl FnOnce(&mut State) -> T) -> T {
        let Some(now) = self.demand.stopwatch else {
            return plan(self);
        };
        let started = now();
        let planned = plan(self);
        self.demand.planning_time += now().saturating_sub(started);
        planned
    }
}
