//! An op after its plan: it completes, is given up, or its announcement is withdrawn; and the loss of a reference.

use super::state::State;
use crate::config::Dealloc;
use crate::error::Error;
use crate::graph::{Life, Made, Phase};
use crate::ids::{Bytes, DeviceId, OpId, StorageId, TensorId};
use crate::op::{Finished, Mutation};

impl State {
    /// A constant with one reference, which is there already.
    pub(crate) fn add_constant(
        &mut self,
        bytes: Bytes,
        device: DeviceId,
    ) -> Result<TensorId, Error> {
        let storage = self.graph.add_storage(bytes, device)?;
        let tensor = self.graph.add_tensor(storage, None)?;
        self.grow(device.0, bytes.0);
        self.graph[tensor].defined = true;
        let record = &mut self.graph[storage];
        record.resident = true;
        record.pinned = true;
        record.last_access = self.clock;
        Ok(tensor)
    }

    /// A first computation (rules 4, 5 and 7 of the reference).
    pub(crate) fn complete(&mut self, op: OpId, report: &Finished<'_>) {
        self.graph.open_ops -= 1;
        self.set_cost(op, report.cost.0);
        self.lose_dependents(op);
        let record = &self.graph[op];
        let (workspace, device, constant) =
            (record.workspace, record.workspace_device, record.constant);
        self.shrink(device, workspace);
        self.free_workspace(op);
        self.clock += report.cost.0;
        self.counters.first_cost.0 = self.counters.first_cost.0.saturating_add(report.cost.0);
        let count = self.graph[op].outputs.len();
        for index in 0..count {
            self.install_first(op, index, report.bytes.map(|bytes| bytes[index].0));
        }
        self.define_outputs(op);
        for index in (1..count).chain(0..count.min(1)) {
            let s = self.graph.output(op, index);
            self.touch(s);
            self.evict_if_unreachable(s);
            if constant && self.graph[s].resident {
                self.pin_storage(s);
                self.collection.to_cut.push(s);
            }
            self.list(s);
        }
        self.unlock_all_inputs(op);
        self.graph[op].phase = Phase::Done;
        self.banish_inputs(op);
        self.arenas.partition.note_density(&self.graph, op);
        self.start_counting(op);
        self.collect();
    }

    /// The cost that was expected becomes the one that was measured.
    fn set_cost(&mut self, op: OpId, cost: u64) {
        let before = std::mem::replace(&mut self.graph[op].cost, cost);
        if before != cost {
            self.graph
                .charge(op, (cost as i64).wrapping_sub(before as i64));
            self.void_around(op);
        }
    }

    fn install_first(&mut self, op: OpId, index: usize, reported: Option<u64>) {
        let record = &self.graph[op];
        let made = record.made[index];
        let s = self.graph.storage_of(record.outputs[index]);
        let storage = &self.graph[s];
        let (device, announced) = (storage.device, storage.bytes);
        match made {
            Made::Fresh => {
                let bytes = reported.unwrap_or(announced);
                self.graph[s].bytes = bytes;
                if bytes != announced {
                    self.resize_block(s, bytes);
                }
                self.grow(device, bytes.saturating_sub(announced));
                self.shrink(device, announced.saturating_sub(bytes));
                self.gain_value(s);
            }
            Made::InPlace(of) => {
                let old = self.graph.input(op, of as usize);
                self.overwrite_block(old, s);
            }
            Made::Alias => {}
        }
    }

    /// A new value took the block of an old one.
    fn overwrite_block(&mut self, old: StorageId, new: StorageId) {
        let storage = &mut self.graph[old];
        let (device, bytes, there) = (storage.device, storage.bytes, storage.resident);
        storage.pinned = false;
        if there {
            self.lose_value(old);
            self.hand_block_over(old, new);
        } else {
            self.grow(device, bytes);
            self.resize_block(new, bytes);
        }
        self.gain_value(new);
    }

    fn unlock_all_inputs(&mut self, op: OpId) {
        for index in 0..self.graph[op].inputs.len() {
            let s = self.graph.input(op, index);
            self.unlock(s);
            if self.collection.collects() {
                self.evict_unreferenced(s);
            }
        }
    }

    /// From now on the op is remembered as long as an output needs it.
    fn start_counting(&mut self, op: OpId) {
        if !self.collection.collects() {
            return;
        }
        let outputs = &self.graph[op].outputs;
        let live = outputs
            .iter()
            .filter(|&&output| self.graph[output].life == Life::Wanted)
            .count();
        self.graph[op].live = live as u32;
        if live == 0 {
            self.forget_op(op);
        }
    }

    /// Eager eviction (rule 12), of what no plan has use for.
    fn evict_unreferenced(&mut self, s: StorageId) {
        let storage = &self.graph[s];
        let idle = storage.refs == 0 && storage.locks == 0 && storage.resident && !storage.pinned;
        if idle && !storage.kept && self.dealloc == Dealloc::Eager {
            self.evict(s);
        }
    }

    /// One reference from outside went.
    pub(crate) fn drop_reference(&mut self, tensor: TensorId) {
        let s = self.graph.storage_of(tensor);
        self.graph[tensor].refs -= 1;
        self.graph[s].refs -= 1;
        if self.graph[s].refs == 0 {
            self.note_references(s);
        }
        self.note_loss(tensor);
        self.collect();
        self.evict_unreferenced(s);
        self.banish_if_free(s);
    }

    /// An open op will not run: what it reserved and locked is free again.
    pub(crate) fn give_up(&mut self, op: OpId) {
        self.seek_bytes(op, Mutation::Consume);
        for device in self.accounts.devices() {
            self.shrink(device, self.accounts.get(device).need);
        }
        self.free_taken_blocks(op);
        self.unlock_all_inputs(op);
        self.forget_begun(op);
    }

    pub(super) fn forget_begun(&mut self, op: OpId) {
        self.discard(op);
        for index in 0..self.graph[op].inputs.len() {
            let input = self.graph[op].inputs[index];
            self.note_loss(input);
        }
        self.collect();
    }

    /// Sets each account's `need` to the bytes that the op takes from it, outputs that are there already included (rule
    /// 3).
    pub(crate) fn seek_bytes(&mut self, op: OpId, mutation: Mutation) {
        for account in self.accounts.all_mut() {
            account.need = 0;
        }
        for index in 0..self.graph[op].outputs.len() {
            let record = &self.graph[op];
            let takes = match record.made[index] {
                Made::Fresh => true,
                Made::Alias => false,
                Made::InPlace(_) => mutation == Mutation::Copy,
            };
            if takes {
                let storage = &self.graph[self.graph.storage_of(record.outputs[index])];
                let (device, bytes) = (storage.device, storage.bytes);
                let account = self.accounts.of(device);
                account.need = account.need.saturating_add(bytes);
            }
        }
        let record = &self.graph[op];
        let (workspace, device) = (record.workspace, record.workspace_device);
        if workspace > 0 {
            let account = self.accounts.of(device);
            account.need = account.need.saturating_add(workspace);
        }
    }

    pub(crate) fn take_sought_bytes(&mut self) {
        for device in self.accounts.devices() {
            self.grow(device, self.accounts.get(device).need);
        }
    }

    /// Missing outputs are there now; the bytes of those that were there before are given back.
    pub(crate) fn install_outputs(&mut self, op: OpId, mutation: Mutation) {
        self.install_blocks(op);
        for index in 0..self.graph[op].outputs.len() {
            let record = &self.graph[op];
            let made = record.made[index];
            let s = self.graph.storage_of(record.outputs[index]);
            let storage = &self.graph[s];
            let (device, bytes, there) = (storage.device, storage.bytes, storage.resident);
            match made {
                Made::Alias => {}
                Made::InPlace(of) if mutation == Mutation::Consume => {
                    let old = self.graph.input(op, of as usize);
                    self.lose_value(old);
                    self.hand_block_over(old, s);
                    self.gain_value(s);
                }
                Made::Fresh | Made::InPlace(_) if there => self.shrink(device, bytes),
                Made::Fresh | Made::InPlace(_) => self.gain_value(s),
            }
        }
        self.define_outputs(op);
        let record = &self.graph[op];
        let (workspace, device) = (record.workspace, record.workspace_device);
        self.shrink(device, workspace);
    }

    /// The op ran: those of its outputs that somebody can ask for can be read.
    pub(crate) fn define_outputs(&mut self, op: OpId) {
        for index in 0..self.graph[op].outputs.len() {
            let output = self.graph[op].outputs[index];
            let there = self.graph[self.graph.storage_of(output)].resident;
            if there && self.graph[output].life == Life::Wanted {
                self.set_defined(output);
            }
        }
    }
}
