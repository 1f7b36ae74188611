//! DTR's own order: the replay of missing ancestors with an explicit stack (DTR appendix C.4; rules 2 to 5 of the
//! reference).

use super::goal::{Attempt, EarlyEviction, Hold, InputOrder, Order, Strategy};
use super::memory_need::MemoryNeeds;
use super::rerun::{Blocks, Rerun, rerun};
use crate::graph::Graph;
use crate::ids::{OpId, TensorId};
use crate::transaction::{State, Stop};

/// Resident inputs are locked all the while, and inputs are seen to as the op names them.
pub(super) const DTR: Strategy = Strategy {
    order: Order::Dtr,
    hold: Hold::All,
    inputs: InputOrder::Given,
    early: EarlyEviction::None,
    bound: u64::MAX,
};

/// An op whose inputs are being seen to.
#[derive(Clone, Copy)]
struct Frame {
    /// `None`: the goal itself.
    replay: Option<(OpId, TensorId)>,
    /// Where its inputs begin in `pending`.
    base: usize,
}

/// Stacks of the replay under way, kept for their buffers.
#[derive(Default)]
pub(super) struct Dtr {
    frames: Vec<Frame>,
    /// Inputs not yet locked, of all frames; the next one last.
    pending: Vec<TensorId>,
}

impl Dtr {
    /// Lays out the plan. On failure the state is left where it got stuck; the caller rolls back.
    pub(super) fn attempt(
        &mut self,
        state: &mut State,
        needs: &mut MemoryNeeds,
        attempt: &Attempt<'_>,
    ) -> Result<(), Stop> {
        let Attempt { goal, strategy, .. } = *attempt;
        self.frames.clear();
        self.pending.clear();
        for &target in &goal.targets {
            self.await_input(state, target, strategy.hold != Hold::Nothing);
        }
        if strategy.early != EarlyEviction::None {
            state.evict_all_candidates();
        }
        state.accounts.begin_attempt();
        if strategy.inputs != InputOrder::Given {
            needs.estimate(&mut state.graph, &goal.targets);
        }
        self.arrange_pending(&state.graph, needs, 0, strategy.inputs);
        self.frames.push(Frame {
            replay: None,
            base: 0,
        });
        self.run(state, needs, attempt)?;
        state.make_room_for_op(goal.op)
    }

    fn run(
        &mut self,
        state: &mut State,
        needs: &MemoryNeeds,
        attempt: &Attempt<'_>,
    ) -> Result<(), Stop> {
        let first = state.counters.replays;
        while let Some(&frame) = self.frames.last() {
            match self.pending.last() {
                Some(&tensor) if self.pending.len() > frame.base => {
                    if state.graph.is_defined(tensor) {
                        self.pending.pop();
                        state.lock(state.graph.storage_of(tensor));
                    } else {
                        self.enter(state, needs, tensor, attempt.strategy)?;
                    }
                }
                _ => {
                    if let Some((op, requested)) = frame.replay {
                        if state.counters.replays - first >= attempt.strategy.bound {
                            return Err(Stop::Work);
                        }
                        let (early, thrash) = (attempt.strategy.early, attempt.thrash);
                        rerun(
                            state,
                            Rerun {
                                op,
                                requested,
                                early,
                                blocks: Blocks::Anywhere,
                                thrash,
                            },
                        )?;
                    }
                    self.frames.pop();
                }
            }
        }
        Ok(())
    }

    /// Starts on the op that makes a missing tensor (rule 2).
    fn enter(
        &mut self,
        state: &mut State,
        needs: &MemoryNeeds,
        tensor: TensorId,
        strategy: Strategy,
    ) -> Result<(), Stop> {
        let op = state.graph[tensor].op.ok_or(Stop::Lost)?;
        let base = self.pending.len();
        let count = state.graph[op].inputs.len();
        for index in 0..count {
            state.touch(state.graph.input(op, index));
        }
        for index in 0..count {
            let input = state.graph[op].inputs[index];
            self.await_input(state, input, strategy.hold == Hold::All);
        }
        self.arrange_pending(&state.graph, needs, base, strategy.inputs);
        self.frames.push(Frame {
            replay: Some((op, tensor)),
            base,
        });
        Ok(())
    }

    fn await_input(&mut self, state: &mut State, input: TensorId, hold: bool) {
        if hold && state.graph.is_defined(input) {
            state.lock(state.graph.storage_of(input));
        } else {
            self.pending.push(input);
        }
    }

    /// Puts the pending inputs from `base` on into their order, the first to be seen to last.
    fn arrange_pending(
        &mut self,
        graph: &Graph,
        needs: &MemoryNeeds,
        base: usize,
        order: InputOrder,
    ) {
        let pending = &mut self.pending[base..];
        pending.reverse();
        match order {
            InputOrder::Given => {}
            InputOrder::LargestNeedFirst => pending.sort_by_key(|&input| needs.of(graph, input)),
            InputOrder::SmallestNeedFirst => {
                pending.sort_by_key(|&input| std::cmp::Reverse(needs.of(graph, input)))
            }
        }
    }
}
