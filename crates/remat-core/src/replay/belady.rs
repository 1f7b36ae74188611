//! The order of Belady (1966): missing ancestors are replayed in the order of Sethi and Ullman, but nothing is held for
//! its uses to come. When room is short, the storage is evicted that the plan reads last; a storage that was dropped
//! too early is brought back by a line of its own. This finds room where the other orders find none, at the price of
//! replays: it is asked only when they fail.
//!
//! Lines wait on one stack, the next op on top.

use super::goal::{Attempt, EarlyEviction, InputOrder};
use super::memory_need::MemoryNeeds;
use super::missing::Missing;
use super::rerun::{Blocks, Rerun, rerun};
use crate::ids::{OpId, TensorId};
use crate::transaction::{State, Stop};

/// An op that is to be replayed for one of its outputs; `None`: the goal.
type Turn = Option<(OpId, TensorId)>;

/// Stacks of the plan, kept from one to the next.
#[derive(Default)]
pub(super) struct Belady {
    /// The turns, as the next uses have them.
    waiting: Vec<Turn>,
    line: Missing,
    missing: Vec<TensorId>,
}

impl Belady {
    /// Lays out the plan; on failure the caller rolls back.
    pub(super) fn attempt(
        &mut self,
        state: &mut State,
        needs: &mut MemoryNeeds,
        attempt: &Attempt<'_>,
    ) -> Result<(), Stop> {
        let goal = attempt.goal;
        state.accounts.begin_attempt();
        needs.estimate(&mut state.graph, &goal.targets);
        self.waiting.clear();
        state.eviction.next_uses.begin(state.graph.storages.len());
        self.await_turn(state, None, &goal.targets);
        let result = self.run(state, attempt);
        state.eviction.next_uses.end();
        result?;
        state.make_room_for_op(goal.op)
    }

    fn run(&mut self, state: &mut State, attempt: &Attempt<'_>) -> Result<(), Stop> {
        let first = state.counters.replays;
        while let Some(&turn) = self.waiting.last() {
            match turn {
                Some((op, _)) if !is_wanted_now(state, op) => self.take_turn(state),
                _ if self.line_up_missing(state, turn, attempt)? => {
                    if state.counters.replays - first >= attempt.strategy.bound {
                        return Err(Stop::Work);
                    }
                }
                Some((op, requested)) => {
                    self.take_turn(state);
                    replay(state, op, requested, attempt)?;
                }
                None => {
                    self.take_turn(state);
                    for &target in &attempt.goal.targets {
                        state.lock(state.graph.storage_of(target));
                    }
                }
            }
        }
        Ok(())
    }

    /// Puts the ops that bring back the missing inputs of a turn on top of it; whether there were any.
    fn line_up_missing(
        &mut self,
        state: &mut State,
        turn: Turn,
        attempt: &Attempt<'_>,
    ) -> Result<bool, Stop> {
        let graph = &state.graph;
        let inputs = match turn {
            Some((op, _)) => &graph[op].inputs[..],
            None => &attempt.goal.targets[..],
        };
        self.missing.clear();
        let missing = inputs.iter().filter(|&&input| !graph.is_defined(input));
        self.missing.extend(missing);
        if self.missing.is_empty() {
            return Ok(false);
        }
        self.line_up(state, attempt.strategy.inputs)?;
        Ok(true)
    }

    fn line_up(&mut self, state: &mut State, order: InputOrder) -> Result<(), Stop> {
        self.line.find(&mut state.graph, &self.missing, order)?;
        for index in (0..self.line.order.len()).rev() {
            let (op, requested) = self.line.order[index];
            let inputs = std::mem::take(&mut state.graph[op].inputs);
            self.await_turn(state, Some((op, requested)), &inputs);
            state.graph[op].inputs = inputs;
        }
        Ok(())
    }

    fn await_turn(&mut self, state: &mut State, turn: Turn, inputs: &[TensorId]) {
        let cost = turn.map_or(0, |(op, _)| state.graph[op].cost);
        self.waiting.push(turn);
        let next_uses = &mut state.eviction.next_uses;
        next_uses.push_turn(cost);
        for &input in inputs {
            next_uses.add_use(state.graph.storage_of(input));
        }
    }

    /// Takes the top turn off, and its uses.
    fn take_turn(&mut self, state: &mut State) {
        self.waiting.pop();
        state.eviction.next_uses.pop_turn();
    }
}

/// Whether an output of the op is missing that the plan still reads.
fn is_wanted_now(state: &State, op: OpId) -> bool {
    let graph = &state.graph;
    graph[op].outputs.iter().any(|&output| {
        let used = state.eviction.next_uses.is_used(graph.storage_of(output));
        used && !graph.is_defined(output)
    })
}

/// Replays an op whose inputs are all there. Those that the plan reads again are held meanwhile, so that the op does
/// not consume them.
fn replay(
    state: &mut State,
    op: OpId,
    requested: TensorId,
    attempt: &Attempt<'_>,
) -> Result<(), Stop> {
    let count = state.graph[op].inputs.len();
    for place in 0..count {
        let s = state.graph.input(op, place);
        state.touch(s);
        state.lock(s);
        if state.eviction.next_uses.is_used(s) {
            state.lock(s);
        }
    }
    let replay = Rerun {
        op,
        requested,
        early: EarlyEviction::None,
        blocks: Blocks::Anywhere,
        thrash: attempt.thrash,
    };
    rerun(state, replay)?;
    for place in 0..count {
        let s = state.graph.input(op, place);
        if state.eviction.next_uses.is_used(s) {
            state.unlock(s);
        }
    }
    Ok(())
}
