//! What happens to an op after its plan: it completes, is given up, or its plan is cut short; and what the last
//! reference's going does.

use crate::graph::{Life, Made, Phase};
use crate::journal::Entry;
use crate::transaction::state::{Call, State};
use crate::{Dealloc, Finished, Mutation, OpId, StorageId, TensorId};

impl State {
    /// A first computation (rules 4, 5 and 7 of the reference).
    pub(crate) fn complete(&mut self, op: OpId, report: &Finished<'_>) {
        self.open_ops -= 1;
        self.set_cost(op, report.cost.0);
        self.doom_dependents(op);
        let record = &self.graph.ops[op.index()];
        let (workspace, pool, constant) =
            (record.workspace, record.workspace_pool, record.constant);
        self.shrink(pool, workspace);
        self.free_workspace(op);
        self.clock += report.cost.0;
        self.counters.first_cost.0 = self.counters.first_cost.0.saturating_add(report.cost.0);
        let count = self.graph.ops[op.index()].outputs.len();
        for index in 0..count {
            self.install_first(op, index, report.bytes.map(|bytes| bytes[index].0));
        }
        self.define_outputs(op);
        for index in (1..count).chain(0..count.min(1)) {
            let s = self
                .graph
                .storage_of(self.graph.ops[op.index()].outputs[index]);
            self.touch(s);
            self.evict_if_dead(s);
            if constant && self.graph.storages[s.index()].resident {
                self.pin_storage(s);
                self.to_cut.push(s);
            }
            self.list(s);
        }
        self.unlock_all_inputs(op);
        self.graph.ops[op.index()].phase = Phase::Done;
        self.banish_inputs(op);
        self.note_density(op);
        self.start_counting(op);
        self.collect();
    }

    /// The cost that was expected becomes the one that was measured.
    fn set_cost(&mut self, op: OpId, cost: u64) {
        let before = std::mem::replace(&mut self.graph.ops[op.index()].cost, cost);
        if before != cost {
            self.graph
                .charge(op, (cost as i64).wrapping_sub(before as i64));
            self.void_around(op);
        }
    }

    fn install_first(&mut self, op: OpId, index: usize, reported: Option<u64>) {
        let record = &self.graph.ops[op.index()];
        let made = record.made[index];
        let s = self.graph.storage_of(record.outputs[index]);
        let storage = &self.graph.storages[s.index()];
        let (pool, announced) = (storage.pool, storage.bytes);
        match made {
            Made::Fresh => {
                let bytes = reported.unwrap_or(announced);
                self.graph.storages[s.index()].bytes = bytes;
                if bytes != announced {
                    self.resize_block(s, bytes);
                }
                self.grow(pool, bytes.saturating_sub(announced));
                self.shrink(pool, announced.saturating_sub(bytes));
                self.gain_value(s);
            }
            Made::InPlace(of) => {
                let old = self
                    .graph
                    .storage_of(self.graph.ops[op.index()].inputs[of as usize]);
                self.take_block(old, s);
            }
            Made::Alias => {}
        }
    }

    /// A new value took the block of an old one.
    fn take_block(&mut self, old: StorageId, new: StorageId) {
        let storage = &mut self.graph.storages[old.index()];
        let (pool, bytes, there) = (storage.pool, storage.bytes, storage.resident);
        storage.pinned = false;
        if there {
            self.lose_value(old);
            self.hand_block_over(old, new);
        } else {
            self.grow(pool, bytes);
            self.resize_block(new, bytes);
        }
        self.gain_value(new);
    }

    fn unlock_all_inputs(&mut self, op: OpId) {
        for index in 0..self.graph.ops[op.index()].inputs.len() {
            let s = self
                .graph
                .storage_of(self.graph.ops[op.index()].inputs[index]);
            self.unlock(s);
            if self.collects() {
                self.evict_unreferenced(s);
            }
        }
    }

    /// From now on the op is remembered as long as an output needs it.
    fn start_counting(&mut self, op: OpId) {
        if !self.collects() {
            return;
        }
        let outputs = &self.graph.ops[op.index()].outputs;
        let live = outputs
            .iter()
            .filter(|&&output| self.graph.tensors[output.index()].life == Life::Wanted)
            .count();
        self.graph.ops[op.index()].live = live as u32;
        if live == 0 {
            self.forget_op(op);
        }
    }

    /// Eager eviction (rule 12).
    fn evict_unreferenced(&mut self, s: StorageId) {
        let storage = &self.graph.storages[s.index()];
        let idle = storage.refs == 0 && storage.locks == 0 && storage.resident && !storage.pinned;
        if idle && self.dealloc == Dealloc::Eager {
            self.evict(s);
        }
    }

    /// One reference from outside went.
    pub(crate) fn drop_reference(&mut self, tensor: TensorId) {
        let s = self.graph.storage_of(tensor);
        self.graph.tensors[tensor.index()].refs -= 1;
        self.graph.storages[s.index()].refs -= 1;
        if self.graph.storages[s.index()].refs == 0 {
            self.void_numerator(s);
        }
        self.note_loss(tensor);
        self.collect();
        self.evict_unreferenced(s);
        self.banish_if_free(s);
    }

    /// An open op will not run: what it reserved and locked is free again.
    pub(crate) fn give_up(&mut self, op: OpId) {
        self.seek_bytes(op, Mutation::Consume);
        for pool in 0..self.pools.len() {
            self.shrink(pool as u8, self.pools[pool].need);
        }
        self.free_taken_blocks(op);
        self.unlock_all_inputs(op);
        self.forget_begun(op);
    }

    fn forget_begun(&mut self, op: OpId) {
        self.discard(op);
        for index in 0..self.graph.ops[op.index()].inputs.len() {
            let input = self.graph.ops[op.index()].inputs[index];
            self.note_loss(input);
        }
        self.collect();
    }

    /// Goes back to what the first steps of the latest plan left; its call is cancelled.
    pub(crate) fn abort(&mut self, performed: usize) {
        let call = std::mem::replace(&mut self.call, Call::Plain);
        if call == Call::Plain {
            return;
        }
        let mark = self
            .journal
            .marks
            .get(performed)
            .or(self.journal.marks.last())
            .copied()
            .unwrap_or(0);
        self.undo_to(mark);
        self.drop_plan_locks();
        self.free_orphaned_blocks();
        self.journal.clear();
        self.steps.clear();
        self.to_cut.clear();
        match call {
            Call::Begin(op) => self.forget_begun(op),
            Call::Budget(pool, before) => self.pool(pool).budget = before,
            Call::Constant(tensor) => self.withdraw_constant(tensor),
            Call::Plan | Call::Plain => {}
        }
    }

    /// Locks that the plan so far took and did not give back.
    fn drop_plan_locks(&mut self) {
        let mut held: Vec<(StorageId, i64)> = Vec::new();
        let mut place = vec![usize::MAX; self.graph.storages.len()];
        for entry in &self.journal.entries {
            let (s, delta) = match *entry {
                Entry::Locked(s) => (s, 1),
                Entry::Unlocked(s) => (s, -1),
                _ => continue,
            };
            if place[s.index()] == usize::MAX {
                place[s.index()] = held.len();
                held.push((s, 0));
            }
            held[place[s.index()]].1 += delta;
        }
        for (s, locks) in held {
            for _ in 0..locks {
                self.unlock(s);
            }
        }
    }

    fn withdraw_constant(&mut self, tensor: TensorId) {
        let s = self.graph.storage_of(tensor);
        let storage = &mut self.graph.storages[s.index()];
        storage.resident = false;
        storage.pinned = false;
        storage.used = false;
        self.graph.unview(tensor);
        self.graph.free_tensors.push(tensor);
        self.graph.free_storages.push(s);
    }
}
