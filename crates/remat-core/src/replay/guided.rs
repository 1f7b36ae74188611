//! The actions of a planned step.

use super::dtr::DTR;
use super::goal::{EarlyEviction, Goal, Strategy};
use super::planner::Planner;
use super::refusal::error;
use super::rerun::{Blocks, Rerun, rerun};
use crate::config::ThrashLimit;
use crate::error::Error;
use crate::graph::{Made, NONE, Phase};
use crate::guide::{Before, Planned};
use crate::ids::{OpId, StorageId};
use crate::transaction::{State, Stop};

impl Planner {
    /// Lays out what was planned, and then what the goal still lacks. Leaves no trace if that does not fit. Returns
    /// how many blocks move to their places.
    pub(crate) fn plan_guided(
        &mut self,
        state: &mut State,
        goal: &Goal,
        before: &Before,
    ) -> Result<usize, Stop> {
        let bound = 20 * state.graph.live_ops as u64 + 10_000;
        let strategy = Strategy { bound, ..DTR };
        state.plan_timed(|state| {
            state.journal.start();
            state.demand.begin_planned(&before.twins);
            before.drops.iter().for_each(|&s| state.drop_planned(s));
            let dropped = state.steps.len();
            state.move_to_places(&before.moves);
            let settled = state.steps.len() - dropped;
            let mut from = 0;
            let mut each = before.actions.iter();
            let done = each.try_for_each(|&(planned, to)| {
                state.demand.set_planned(&before.addresses[from..to]);
                from = to;
                state.perform_planned(planned, self.thrash)
            });
            state.demand.set_planned(before.own());
            let done = done.and_then(|()| self.attempt(state, goal, strategy));
            match done {
                Ok(()) => state.journal.mark(),
                Err(_) => state.roll_back(),
            }
            done.map(|()| settled)
        })
    }

    /// Lays out one action. Leaves no trace if that does not fit.
    pub(crate) fn plan_one(&mut self, state: &mut State, planned: Planned) -> Result<(), Error> {
        state.journal.start();
        let Err(stop) = state.perform_planned(planned, self.thrash) else {
            state.journal.mark();
            return Ok(());
        };
        let refusal = match stop {
            Stop::Short(device) => state.short_of(device, state.accounts.get(device).need),
            Stop::Lost => Error::Protocol("a plan runs an op of which an input is not there"),
            stop => error(stop),
        };
        state.roll_back();
        Err(refusal)
    }
}

impl State {
    fn perform_planned(&mut self, planned: Planned, thrash: ThrashLimit) -> Result<(), Stop> {
        match planned {
            Planned::Drop(s) => {
                self.drop_planned(s);
                Ok(())
            }
            Planned::Run(op) => self.run_planned(op, Olds::Stay, thrash),
            Planned::RunInPlace(op) => self.run_planned(op, Olds::Go, thrash),
        }
    }

    /// Evicts a storage, if it can be.
    fn drop_planned(&mut self, s: StorageId) {
        if self.graph[s].slot != NONE {
            self.journal.write_counters(self.counters);
            self.counters.evictions += 1;
            self.evict(s);
        }
    }

    /// Replays an op, unless all of its outputs are there.
    fn run_planned(&mut self, op: OpId, olds: Olds, thrash: ThrashLimit) -> Result<(), Stop> {
        let record = &self.graph[op];
        let missing = record.outputs.iter().copied();
        let requested = missing
            .filter(|&output| self.graph.is_wanted(output))
            .find(|&output| !self.graph.is_defined(output));
        let Some(requested) = requested.filter(|_| record.phase == Phase::Done) else {
            return Ok(());
        };
        let mut inputs = record.inputs.iter();
        if !inputs.all(|&input| self.graph.is_defined(input)) {
            return Err(Stop::Lost);
        }
        for index in 0..self.graph[op].inputs.len() {
            let input = self.graph.input(op, index);
            self.touch(input);
            self.lock(input);
        }
        // A value that something else holds is copied.
        if olds == Olds::Stay {
            self.for_each_old(op, State::lock);
        }
        rerun(
            self,
            Rerun {
                op,
                requested,
                early: EarlyEviction::None,
                blocks: Blocks::Planned,
                thrash,
            },
        )?;
        if olds == Olds::Stay {
            self.for_each_old(op, State::unlock);
        }
        Ok(())
    }

    fn for_each_old(&mut self, op: OpId, act: fn(&mut State, StorageId)) {
        for index in 0..self.graph[op].made.len() {
            if let Made::InPlace(of) = self.graph[op].made[index] {
                act(self, self.graph.input(op, of as usize));
            }
        }
    }
}

/// The fate of values that an op writes into.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Olds {
    Stay,
    Go,
}
