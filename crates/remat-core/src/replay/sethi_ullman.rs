//! The order that knows what it is for: every missing ancestor is replayed once, in the order of Sethi and Ullman
//! (hungriest input first), and held until its last use in the plan. DTR's own order locks the inputs of every op on the
//! way down and lets the policy drop what the plan needs next; here nothing is held before its time and nothing that
//! the plan still needs is dropped. Under [`ReplayOrder::Fit`](crate::ReplayOrder) both are laid out and the plan that
//! evicts less is taken.

use crate::graph::Made;
use crate::replay::dtr::{Goal, InputOrder, Style, Thrift};
use crate::transaction::state::{State, Stop};
use crate::{OpId, StorageId, TensorId};

/// Buffers of the plan, kept from one to the next.
#[derive(Default)]
pub(crate) struct Line {
    /// Ops to replay, ancestors first, and the output that asked for each.
    pub(crate) order: Vec<(OpId, TensorId)>,
    stack: Vec<(OpId, TensorId, bool)>,
    /// Uses to come of each storage, by index.
    uses: Vec<u32>,
    /// Storages with uses.
    needed: Vec<StorageId>,
    inputs: Vec<TensorId>,
}

impl State {
    /// Lays out the plan; on failure the caller rolls back.
    pub(crate) fn attempt_once(&mut self, goal: &Goal, style: Style) -> Result<(), Stop> {
        for &input in &goal.targets[goal.inputs_from..] {
            self.touch(self.graph.storage_of(input));
        }
        self.estimate_needs(&goal.targets);
        let mut line = std::mem::take(&mut self.replays.line);
        let result = self
            .line_up(&mut line, goal, style.order)
            .and_then(|()| self.replay_line(&mut line, goal, style.thrift));
        self.replays.line = line;
        result
    }

    /// Finds the missing ancestors, each once, and counts the uses that each storage has in the plan.
    fn line_up(&mut self, line: &mut Line, goal: &Goal, order: InputOrder) -> Result<(), Stop> {
        for s in line.needed.drain(..) {
            line.uses[s.index()] = 0;
        }
        line.uses.resize(self.graph.storages.len(), 0);
        self.order_missing(line, &goal.targets, order)?;
        for index in 0..line.order.len() {
            let op = line.order[index].0;
            for place in 0..self.graph.ops[op.index()].inputs.len() {
                let input = self.graph.ops[op.index()].inputs[place];
                self.count_use(line, input);
            }
        }
        for &target in &goal.targets {
            self.count_use(line, target);
        }
        Ok(())
    }

    /// The ops that bring tensors back, each once, ancestors first.
    pub(crate) fn order_missing(
        &mut self,
        line: &mut Line,
        tensors: &[TensorId],
        order: InputOrder,
    ) -> Result<(), Stop> {
        line.order.clear();
        line.stack.clear();
        let stamp = self.graph.new_stamp();
        self.push_missing(line, tensors, order, stamp)?;
        while let Some((op, requested, inputs_done)) = line.stack.pop() {
            if inputs_done {
                line.order.push((op, requested));
            } else if std::mem::replace(&mut self.graph.ops[op.index()].stamp, stamp) != stamp {
                line.stack.push((op, requested, true));
                let mut inputs = std::mem::take(&mut line.inputs);
                inputs.clear();
                inputs.extend_from_slice(&self.graph.ops[op.index()].inputs);
                let pushed = self.push_missing(line, &inputs, order, stamp);
                line.inputs = inputs;
                pushed?;
            }
        }
        Ok(())
    }

    /// Puts the ops of missing tensors on the stack, the hungriest on top.
    fn push_missing(
        &mut self,
        line: &mut Line,
        tensors: &[TensorId],
        order: InputOrder,
        stamp: u32,
    ) -> Result<(), Stop> {
        let from = line.stack.len();
        for &tensor in tensors.iter().rev() {
            if self.graph.is_defined(tensor) {
                continue;
            }
            let op = self.graph.tensors[tensor.index()].op.ok_or(Stop::Lost)?;
            if self.graph.ops[op.index()].stamp != stamp {
                line.stack.push((op, tensor, false));
            }
        }
        match order {
            InputOrder::Given => {}
            InputOrder::HungriestFirst => {
                line.stack[from..].sort_by_key(|&(op, ..)| self.graph.ops[op.index()].estimate)
            }
            InputOrder::HungriestLast => line.stack[from..]
                .sort_by_key(|&(op, ..)| std::cmp::Reverse(self.graph.ops[op.index()].estimate)),
        }
        Ok(())
    }

    fn count_use(&self, line: &mut Line, tensor: TensorId) {
        let s = self.graph.storage_of(tensor);
        if line.uses[s.index()] == 0 {
            line.needed.push(s);
        }
        line.uses[s.index()] += 1;
    }

    fn replay_line(&mut self, line: &mut Line, goal: &Goal, thrift: Thrift) -> Result<(), Stop> {
        for index in 0..line.needed.len() {
            let s = line.needed[index];
            if self.graph.storages[s.index()].resident {
                self.lock(s);
            }
        }
        if thrift != Thrift::None {
            self.evict_all_candidates();
        }
        self.pools
            .iter_mut()
            .for_each(|pool| pool.high = pool.memory);
        for index in 0..line.order.len() {
            let (op, requested) = line.order[index];
            self.lock_outputs_in_use(line, op);
            for place in 0..self.graph.ops[op.index()].inputs.len() {
                let input = self.graph.ops[op.index()].inputs[place];
                let s = self.graph.storage_of(input);
                self.touch(s);
                self.lock(s);
                self.use_up(line, s);
            }
            self.replay(op, requested, thrift)?;
        }
        for &target in &goal.targets {
            let s = self.graph.storage_of(target);
            self.lock(s);
            self.use_up(line, s);
        }
        self.make_room_for_op(goal.op)
    }

    /// What the op brings back and the plan still needs is held from the start.
    fn lock_outputs_in_use(&mut self, line: &Line, op: OpId) {
        for index in 0..self.graph.ops[op.index()].outputs.len() {
            let record = &self.graph.ops[op.index()];
            let s = self.graph.storage_of(record.outputs[index]);
            let fresh = record.made[index] != Made::Alias;
            if fresh && line.uses[s.index()] > 0 && !self.graph.storages[s.index()].resident {
                self.lock(s);
            }
        }
    }

    fn use_up(&mut self, line: &mut Line, s: StorageId) {
        line.uses[s.index()] -= 1;
        if line.uses[s.index()] == 0 {
            self.unlock(s);
        }
    }
}
