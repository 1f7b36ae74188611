//! The missing ancestors of tensors, in the order of Sethi and Ullman.

use super::goal::InputOrder;
use crate::graph::Graph;
use crate::ids::{OpId, TensorId};
use crate::transaction::Stop;

/// The ops that bring tensors back, and the buffers of the search for them.
#[derive(Default)]
pub(super) struct Missing {
    /// Each op once, ancestors first, with the output that asked for it.
    pub(super) order: Vec<(OpId, TensorId)>,
    stack: Vec<(OpId, TensorId, bool)>,
    inputs: Vec<TensorId>,
}

impl Missing {
    /// Finds the ops that bring tensors back. Memory needs are estimated.
    pub(super) fn find(
        &mut self,
        graph: &mut Graph,
        tensors: &[TensorId],
        order: InputOrder,
    ) -> Result<(), Stop> {
        self.order.clear();
        self.stack.clear();
        let stamp = graph.new_stamp();
        self.push(graph, tensors, order, stamp)?;
        while let Some((op, requested, inputs_done)) = self.stack.pop() {
            if inputs_done {
                self.order.push((op, requested));
            } else if std::mem::replace(&mut graph[op].stamp, stamp) != stamp {
                self.stack.push((op, requested, true));
                let mut inputs = std::mem::take(&mut self.inputs);
                inputs.clear();
                inputs.extend_from_slice(&graph[op].inputs);
                let pushed = self.push(graph, &inputs, order, stamp);
                self.inputs = inputs;
                pushed?;
            }
        }
        Ok(())
    }

    /// Puts the ops of missing tensors on the stack, the one to go first on top.
    fn push(
        &mut self,
        graph: &Graph,
        tensors: &[TensorId],
        order: InputOrder,
        stamp: u32,
    ) -> Result<(), Stop> {
        let from = self.stack.len();
        for &tensor in tensors.iter().rev() {
            if graph.is_defined(tensor) {
                continue;
            }
            let op = graph[tensor].op.ok_or(Stop::Lost)?;
            if graph[op].stamp != stamp {
                self.stack.push((op, tensor, false));
            }
        }
        let pushed = &mut self.stack[from..];
        match order {
            InputOrder::Given => {}
            InputOrder::LargestNeedFirst => pushed.sort_by_key(|&(op, ..)| graph[op].estimate),
            InputOrder::SmallestNeedFirst => {
                pushed.sort_by_key(|&(op, ..)| std::cmp::Reverse(graph[op].estimate))
            }
        }
        Ok(())
    }
}
