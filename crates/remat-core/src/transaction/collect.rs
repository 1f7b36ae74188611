//! Lineage collection ([`Lineage::Collect`](crate::Lineage)): ops and storages that nothing can ask for are forgotten.
//!
//! Tensors form a DAG through the ops that make them, so counts suffice: a tensor is wanted while it is referenced from
//! outside or named by a remembered op; an op is remembered while it is open or an output of it is wanted and not
//! settled (defined in a pinned storage); a storage is alive while a tensor of it is wanted.

use super::state::State;
use crate::eviction::{Announced, Change};
use crate::graph::{Life, Made, NONE, Phase};
use crate::ids::{OpId, StorageId, TensorId};

impl State {
    /// A count of the tensor went down.
    pub(super) fn note_loss(&mut self, t: TensorId) {
        self.collection.note_loss(&mut self.graph, t);
    }

    /// Forgets the tensors that nobody can ask for any more, and all that only they needed.
    pub(crate) fn collect(&mut self) {
        while let Some(t) = self.collection.next() {
            self.forget_tensor(t);
        }
    }

    fn forget_tensor(&mut self, t: TensorId) {
        let tensor = &mut self.graph[t];
        tensor.life = Life::Forgotten;
        let (s, op, settled) = (tensor.storage, tensor.op, tensor.settled);
        self.graph[s].live_views -= 1;
        if self.graph[s].live_views == 0 {
            self.forget_value(s);
        }
        match op {
            Some(op) if !settled && self.graph[op].phase == Phase::Done => self.lose_output(op),
            Some(_) => {}
            None => self.free_tensor(t),
        }
    }

    /// Nobody can ask for the storage any more: its bytes go, and it leaves the neighbourhoods.
    fn forget_value(&mut self, s: StorageId) {
        self.void_numerator(s);
        let storage = &self.graph[s];
        if self.eviction.counts_neighbourhoods() {
            self.graph[s].live_views = 1;
            self.void_neighbourhood(s, Change::Other);
            self.graph[s].live_views = 0;
        } else if !storage.resident {
            self.leave_component(s);
        }
        self.free_bytes_of(s);
    }

    fn free_bytes_of(&mut self, s: StorageId) {
        if self.graph[s].resident {
            self.graph[s].pinned = false;
            self.evict(s);
        }
    }

    /// An output of a finished op is no longer wanted, or it is settled.
    fn lose_output(&mut self, op: OpId) {
        let record = &mut self.graph[op];
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
        for index in 0..self.graph[op].inputs.len() {
            let input = self.graph[op].inputs[index];
            self.note_loss(input);
        }
        for index in 0..self.graph[op].outputs.len() {
            let output = self.graph[op].outputs[index];
            self.graph.unmake(output);
            if self.graph[output].life == Life::Forgotten {
                self.free_tensor(output);
            }
        }
        self.graph[op].phase = Phase::Free;
        self.graph.live_ops -= 1;
        self.collection.freed_ops.push(op);
    }

    /// Takes the op's cost off the storages that it made views of.
    fn uncharge(&mut self, op: OpId) {
        let cost = self.graph[op].cost as i64;
        if self.eviction.counts_components() {
            let stamp = self.graph.new_stamp();
            for index in 0..self.graph[op].outputs.len() {
                let s = self.graph.output(op, index);
                let storage = &mut self.graph[s];
                let fresh = std::mem::replace(&mut storage.stamp, stamp) != stamp;
                let node = storage.node;
                if fresh && node != NONE && !storage.resident {
                    let (graph, journal) = (&mut self.graph, &mut self.journal);
                    self.eviction
                        .add_cost(graph, journal, node, cost.wrapping_neg());
                }
            }
        }
        self.graph.charge(op, cost.wrapping_neg());
    }

    /// An op was announced: the storages that it makes views of cost more from now on, and its results may count around
    /// it.
    pub(crate) fn note_announced(&mut self, op: OpId) {
        let number = self.eviction.announce();
        self.graph.open_ops += 1;
        if self.eviction.announced() == Announced::Counts {
            return self.void_around(op);
        }
        for index in 0..self.graph[op].outputs.len() {
            let record = &self.graph[op];
            let s = self.graph.storage_of(record.outputs[index]);
            let fresh = record.made[index] != Made::Alias;
            let storage = &mut self.graph[s];
            if fresh {
                storage.announced = number;
            } else if storage.resident {
                self.void_numerator(s);
            } else {
                self.void_neighbourhood(s, Change::Other);
            }
        }
    }

    /// Gives a forgotten tensor's id back, and its storage's with the last.
    fn free_tensor(&mut self, t: TensorId) {
        let s = self.graph.storage_of(t);
        if self.graph.unview(t) {
            self.free_bytes_of(s);
            self.leave_component(s);
            self.graph[s].used = false;
            self.collection.freed_storages.push(s);
        }
        self.collection.freed_tensors.push(t);
    }

    /// The lineage of a pinned storage is not needed.
    pub(crate) fn cut(&mut self, s: StorageId) {
        if !self.collection.collects() || !self.graph[s].pinned {
            return;
        }
        let views = self.graph[s].views.clone();
        for view in views {
            let tensor = &self.graph[view];
            let wanted = tensor.refs > 0 || tensor.uses > 0;
            if !tensor.used || !tensor.defined || tensor.settled || !wanted {
                continue;
            }
            let done = |op: &OpId| self.graph[*op].phase == Phase::Done;
            if let Some(op) = tensor.op.filter(done) {
                self.graph[view].settled = true;
                self.lose_output(op);
            }
        }
    }

    /// Cuts what the latest plan pinned; not while it may be aborted.
    pub(crate) fn cut_pinned(&mut self) {
        while let Some(s) = self.collection.to_cut.pop() {
            self.cut(s);
        }
        self.collect();
    }

    /// The op never was: its outputs go, its inputs are untied. Ids go straight back, latest first.
    pub(crate) fn discard(&mut self, op: OpId) {
        self.graph.open_ops -= 1;
        self.void_around(op);
        let cost = self.graph[op].cost as i64;
        self.graph.charge(op, cost.wrapping_neg());
        let mut fresh = Vec::new();
        let mut blocks = Vec::new();
        while let Some(output) = self.graph[op].outputs.pop() {
            let made = self.graph[op].made.pop();
            let s = self.graph.storage_of(output);
            let refs = self.graph[output].refs;
            let storage = &mut self.graph[s];
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
            self.graph[s].used = false;
            self.graph.free_storages.push(s);
        }
        self.graph.untie(op);
        self.graph[op].phase = Phase::Free;
        self.graph.live_ops -= 1;
        self.graph.free_ops.push(op);
    }
}
