//! Memory needs: for every missing ancestor's op, the bytes that bringing its outputs back takes beyond those that are
//! there. Sethi and Ullman's numbering, exact on trees.

use crate::graph::{Graph, Made};
use crate::ids::{OpId, TensorId};

/// The needs estimated last. They stand in the ops' records.
#[derive(Default)]
pub(super) struct MemoryNeeds {
    /// Ops that bear it have an estimate.
    stamp: u32,
    stack: Vec<(OpId, bool)>,
    /// Of an op's missing inputs: need beyond the bytes, bytes.
    inputs: Vec<(u64, u64)>,
}

impl MemoryNeeds {
    /// Estimates the needs of all missing ancestors.
    pub(super) fn estimate(&mut self, graph: &mut Graph, targets: &[TensorId]) {
        self.stamp = graph.new_stamp();
        self.stack.clear();
        let missing = targets
            .iter()
            .filter_map(|&target| missing_source(graph, target));
        self.stack.extend(missing.map(|op| (op, false)));
        while let Some((op, inputs_done)) = self.stack.pop() {
            if inputs_done {
                graph[op].estimate = self.of_op(graph, op);
            } else if std::mem::replace(&mut graph[op].stamp, self.stamp) != self.stamp {
                graph[op].estimate = 0;
                self.stack.push((op, true));
                for &input in &graph[op].inputs {
                    if let Some(source) = missing_source(graph, input) {
                        if graph[source].stamp != self.stamp {
                            self.stack.push((source, false));
                        }
                    }
                }
            }
        }
    }

    fn of_op(&mut self, graph: &Graph, op: OpId) -> u64 {
        let record = &graph[op];
        let mut inputs = std::mem::take(&mut self.inputs);
        inputs.clear();
        for &input in &record.inputs {
            if !graph.is_defined(input) {
                let bytes = graph[graph.storage_of(input)].bytes;
                inputs.push((self.of(graph, input), bytes));
            }
        }
        inputs.sort_unstable_by(|a, b| b.cmp(a));
        let (mut held, mut peak) = (0u64, 0u64);
        for &(beyond, bytes) in &inputs {
            peak = peak.max(held.saturating_add(beyond).saturating_add(bytes));
            held = held.saturating_add(bytes);
        }
        self.inputs = inputs;
        let mut own = record.workspace;
        for (&output, made) in record.outputs.iter().zip(&record.made) {
            if *made != Made::Alias {
                own = own.saturating_add(graph[graph.storage_of(output)].bytes);
            }
        }
        peak.max(held.saturating_add(own))
    }

    /// Bytes that bringing a tensor back takes beyond its own.
    pub(super) fn of(&self, graph: &Graph, tensor: TensorId) -> u64 {
        let Some(op) = missing_source(graph, tensor) else {
            return 0;
        };
        if graph[op].stamp != self.stamp {
            return 0;
        }
        let bytes = graph[graph.storage_of(tensor)].bytes;
        graph[op].estimate.saturating_sub(bytes)
    }
}

/// The op that must run for a tensor that is not there.
fn missing_source(graph: &Graph, tensor: TensorId) -> Option<OpId> {
    let tensor = &graph[tensor];
    if tensor.defined { None } else { tensor.op }
}
