//! Lineage collection ([`Lineage::Collect`](crate::Lineage)): ops and storages that nothing can ask for are forgotten.
//!
//! Tensors form a DAG through the ops that make them, so counts suffice: a tensor is wanted while it is referenced from
//! outside or named by a remembered op; an op is remembered while it is open or an output of it is wanted and not
//! settled (defined in a pinned storage); a storage is alive while a tensor of it is wanted.

use crate::eviction::neighbourhood::Change;
use crate::graph::{Life, Made, Phase, NONE};
use crate::transaction::state::State;
use crate::{OpId, StorageId, TensorId};

impl State {
    /// A count of the tensor went down.
    pub(crate) fn note_loss(&mut self, t: TensorId) {
        let wanted = self.graph.is_wanted(t);
        let tensor = &mut self.graph.tensors[t.index()];
        if self.lineage == crate::Lineage::Collect && !wanted && tensor.life == Life::Wanted {
            tensor.life = Life::Queued;
            self.dead.push(t);
        }
    }

    /// Follows up what nobody can ask for any more.
    pub(crate) fn collect(&mut self) {
        while let Some(t) = self.dead.pop() {
            self.forget_tensor(t);
        }
    }

    fn forget_tensor(&mut self, t: TensorId) {
        let tensor = &mut self.graph.tensors[t.index()];
        tensor.life = Life::Forgotten;
        let (s, op, settled) = (tensor.storage, tensor.op, tensor.settled);
        self.graph.storages[s.index()].live_views -= 1;
        if self.graph.storages[s.index()].live_views == 0 {
            self.forget_value(s);
        }
        match op {
            Some(op) if !settled && self.graph.ops[op.index()].phase == Phase::Done => {
                self.lose_output(op)
            }
            Some(_) => {}
            None => self.free_tensor(t),
        }
    }

    /// Nobody can ask for the storage any more: its bytes go, and it leaves the neighbourhoods.
    fn forget_value(&mut self, s: StorageId) {
        self.void_numerator(s);
        let storage = &self.graph.storages[s.index()];
        if self.rule.numerator.is_exact() {
            self.graph.storages[s.index()].live_views = 1;
            self.void_neighbourhood(s, Change::Other);
            self.graph.storages[s.index()].live_views = 0;
        } else if !storage.resident {
            self.leave_component(s);
        }
        self.free_bytes_of(s);
    }

    fn free_bytes_of(&mut self, s: StorageId) {
        if self.graph.storages[s.index()].resident {
            self.graph.storages[s.index()].pinned = false;
            self.evict(s);
        }
    }

    /// An output of a finished op is not wanted, or settled.
    fn lose_output(&mut self, op: OpId) {
        let record = &mut self.graph.ops[op.index()];
        record.live -= 1;
        if record.live == 0 {
            self.forget_op(op);
        }
    }

    /// Nothing needs the op to run again.
    pub(crate) fn forget_op(&mut self, op: OpId) {
        self.void_around(op);
        self.uncharge(op);
        self.graph.untie(op);
        for index in 0..self.graph.ops[op.index()].inputs.len() {
            let input = self.graph.ops[op.index()].inputs[index];
            self.note_loss(input);
        }
        for index in 0..self.graph.ops[op.index()].outputs.len() {
            let output = self.graph.ops[op.index()].outputs[index];
            self.graph.unmake(output);
            if self.graph.tensors[output.index()].life == Life::Forgotten {
                self.free_tensor(output);
            }
        }
        self.graph.ops[op.index()].phase = Phase::Free;
        self.graph.live_ops -= 1;
        self.freed_ops.push(op);
    }

    /// Takes the op's cost off the storages that it made views of.
    fn uncharge(&mut self, op: OpId) {
        let cost = self.graph.ops[op.index()].cost as i64;
        if self.counts_components() {
            let stamp = self.graph.new_stamp();
            for index in 0..self.graph.ops[op.index()].outputs.len() {
                let s = self
                    .graph
                    .storage_of(self.graph.ops[op.index()].outputs[index]);
                let storage = &mut self.graph.storages[s.index()];
                let fresh = std::mem::replace(&mut storage.stamp, stamp) != stamp;
                let node = storage.node;
                if fresh && node != NONE && !storage.resident {
                    self.add_worth(node, cost.wrapping_neg());
                }
            }
        }
        self.graph.charge(op, cost.wrapping_neg());
    }

    /// An op was announced: what it makes views of costs more from now on, and its results may count around it.
    pub(crate) fn note_announced(&mut self, op: OpId) {
        self.announcements += 1;
        self.open_ops += 1;
        if !self.announces_late {
            return self.void_around(op);
        }
        for index in 0..self.graph.ops[op.index()].outputs.len() {
            let record = &self.graph.ops[op.index()];
            let s = self.graph.storage_of(record.outputs[index]);
            let fresh = record.made[index] != Made::Alias;
            let storage = &mut self.graph.storages[s.index()];
            if fresh {
                storage.announced = self.announcements;
            } else if storage.resident {
                self.void_numerator(s);
            } else {
                self.void_neighbourhood(s, Change::Other);
            }
        }
    }

    /// Scores next to an op are about to change.
    pub(crate) fn void_around(&mut self, op: OpId) {
        let exact = self.rule.numerator.is_exact();
        let record = &self.graph.ops[op.index()];
        for index in 0..record.inputs.len() + record.outputs.len() {
            let record = &self.graph.ops[op.index()];
            let tensor = record
                .inputs
                .get(index)
                .or_else(|| record.outputs.get(index - record.inputs.len()));
            let Some(&tensor) = tensor else { continue };
            let s = self.graph.storage_of(tensor);
            if exact && !self.graph.storages[s.index()].resident {
                self.void_neighbourhood(s, Change::Other);
            } else {
                self.void_numerator(s);
            }
        }
    }

    /// Gives a dead tensor's id back, and its storage's with the last.
    fn free_tensor(&mut self, t: TensorId) {
        let s = self.graph.storage_of(t);
        if self.graph.unview(t) {
            self.free_bytes_of(s);
            self.leave_component(s);
            self.graph.storages[s.index()].used = false;
            self.freed_storages.push(s);
        }
        self.freed_tensors.push(t);
    }

    /// The lineage of a pinned storage is not needed.
    pub(crate) fn cut(&mut self, s: StorageId) {
        if !self.collects() || !self.graph.storages[s.index()].pinned {
            return;
        }
        let views = self.graph.storages[s.index()].views.clone();
        for view in views {
            let tensor = &mut self.graph.tensors[view.index()];
            if !tensor.used
                || !tensor.defined
                || tensor.settled
                || (tensor.refs == 0 && tensor.uses == 0)
            {
                continue;
            }
            match tensor.op {
                Some(op) if self.graph.ops[op.index()].phase == Phase::Done => {
                    tensor.settled = true;
                    self.lose_output(op);
                }
                _ => {}
            }
        }
    }

    /// Cuts what the latest plan pinned; not while it may be aborted.
    pub(crate) fn cut_pinned(&mut self) {
        while let Some(s) = self.to_cut.pop() {
            self.cut(s);
        }
        self.collect();
    }

    /// The op never was: its outputs go, its inputs are untied. Ids go straight back, latest first.
    pub(crate) fn discard(&mut self, op: OpId) {
        self.open_ops -= 1;
        self.void_around(op);
        let cost = self.graph.ops[op.index()].cost as i64;
        self.graph.charge(op, cost.wrapping_neg());
        let mut fresh = Vec::new();
        let mut blocks = Vec::new();
        while let Some(output) = self.graph.ops[op.index()].outputs.pop() {
            let made = self.graph.ops[op.index()].made.pop();
            let s = self.graph.storage_of(output);
            let refs = self.graph.tensors[output.index()].refs;
            let storage = &mut self.graph.storages[s.index()];
            storage.refs -= refs;
            storage.live_views -= 1;
            self.graph.unview(output);
            self.graph.free_tensors.push(output);
            match made {
                Some(Made::Fresh) => fresh.push(s),
                Some(Made::InPlace(_)) => blocks.push(s),
                _ => {}
            }
        }
        for s in fresh.into_iter().chain(blocks) {
            self.leave_component(s);
            self.graph.storages[s.index()].used = false;
            self.graph.free_storages.push(s);
        }
        self.graph.untie(op);
        self.graph.ops[op.index()].phase = Phase::Free;
        self.graph.live_ops -= 1;
        self.graph.free_ops.push(op);
    }
}

/// Ids that were freed and are now handed over.
#[derive(Default)]
pub(crate) struct Freed {
    pub(crate) ops: Vec<OpId>,
    pub(crate) storages: Vec<StorageId>,
}

impl State {
    /// Hands the freed ids over; from now on they may be used again.
    pub(crate) fn hand_over(&mut self, freed: &mut Freed) {
        freed.ops.clear();
        freed.storages.clear();
        std::mem::swap(&mut freed.ops, &mut self.freed_ops);
        std::mem::swap(&mut freed.storages, &mut self.freed_storages);
        self.graph.free_ops.extend_from_slice(&freed.ops);
        self.graph.free_storages.extend_from_slice(&freed.storages);
        self.graph.free_tensors.append(&mut self.freed_tensors);
    }
}
