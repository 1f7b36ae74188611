//! Storages, tensors, ops, and who reads what (DTR appendix C.1). Flat vectors with dense ids; slots and their buffers
//! are reused, so that a steady state allocates nothing.

use super::records::{Life, Made, NONE, Next, Op, Reader, Storage, Tensor, Way};
use crate::error::Error;
use crate::ids::{Bytes, DeviceId, OpId, StorageId, TensorId};
use crate::op::{Expected, OpSpec, Output, Replay};
use std::ops::{Index, IndexMut};

/// The graph.
#[derive(Default)]
pub(crate) struct Graph {
    pub(crate) storages: Vec<Storage>,
    /// For each storage and way, the storages next to it.
    pub(super) next: Vec<[Next; 2]>,
    pub(crate) tensors: Vec<Tensor>,
    pub(crate) ops: Vec<Op>,
    pub(crate) free_storages: Vec<StorageId>,
    pub(crate) free_tensors: Vec<TensorId>,
    pub(crate) free_ops: Vec<OpId>,
    /// Ops in use.
    pub(crate) live_ops: usize,
    /// Ops begun and not yet completed.
    pub(crate) open_ops: u32,
    pub(super) stamp: u32,
    /// Blocks taken over in the op under construction: old storage, new storage, index of the output that takes it.
    taken: Vec<(StorageId, StorageId, usize)>,
}

/// Each id names its record.
macro_rules! records {
    ($id:ident, $record:ident, $field:ident) => {
        impl Index<$id> for Graph {
            type Output = $record;

            #[inline]
            fn index(&self, id: $id) -> &$record {
                &self.$field[id.index()]
            }
        }

        impl IndexMut<$id> for Graph {
            #[inline]
            fn index_mut(&mut self, id: $id) -> &mut $record {
                &mut self.$field[id.index()]
            }
        }
    };
}

records!(StorageId, Storage, storages);
records!(TensorId, Tensor, tensors);
records!(OpId, Op, ops);

impl Graph {
    /// The storage that an op's input views.
    #[inline]
    pub(crate) fn input(&self, op: OpId, index: usize) -> StorageId {
        self.storage_of(self[op].inputs[index])
    }

    /// The storage that an op's output views.
    #[inline]
    pub(crate) fn output(&self, op: OpId, index: usize) -> StorageId {
        self.storage_of(self[op].outputs[index])
    }

    pub(crate) fn storage_of(&self, tensor: TensorId) -> StorageId {
        self[tensor].storage
    }

    /// Whether somebody can still ask for the tensor.
    pub(crate) fn is_wanted(&self, tensor: TensorId) -> bool {
        let tensor = &self[tensor];
        tensor.refs > 0 || tensor.uses > 0
    }

    pub(crate) fn is_defined(&self, tensor: TensorId) -> bool {
        self[tensor].defined
    }

    /// A stamp that no storage and no op bears.
    pub(crate) fn new_stamp(&mut self) -> u32 {
        if self.stamp == u32::MAX {
            self.storages
                .iter_mut()
                .for_each(|storage| storage.stamp = 0);
            self.ops.iter_mut().for_each(|op| op.stamp = 0);
            self.stamp = 0;
        }
        self.stamp += 1;
        self.stamp
    }

    pub(crate) fn add_storage(
        &mut self,
        bytes: Bytes,
        device: DeviceId,
    ) -> Result<StorageId, Error> {
        if let Some(id) = self.free_storages.pop() {
            self[id].renew(bytes, device);
            let next = self.next[id.index()].iter_mut();
            next.for_each(|next| next.known = false);
            return Ok(id);
        }
        let id = StorageId(next_id(self.storages.len())?);
        self.storages.push(Storage::new(bytes, device));
        self.next.push(Default::default());
        Ok(id)
    }

    /// A tensor with one reference.
    pub(crate) fn add_tensor(
        &mut self,
        storage: StorageId,
        op: Option<OpId>,
    ) -> Result<TensorId, Error> {
        let place = self[storage].views.len() as u32;
        let tensor = Tensor {
            storage,
            op,
            refs: 1,
            uses: 0,
            defined: false,
            settled: false,
            used: true,
            life: Life::Wanted,
            place,
        };
        let id = match self.free_tensors.pop() {
            Some(id) => {
                self[id] = tensor;
                id
            }
            None => {
                let id = TensorId(next_id(self.tensors.len())?);
                self.tensors.push(tensor);
                id
            }
        };
        self.next[storage.index()][Way::Ancestors as usize].known = false;
        let storage = &mut self[storage];
        storage.views.push(id);
        storage.refs += 1;
        storage.live_views += 1;
        Ok(id)
    }

    /// Makes an op and its outputs, none of them computed yet, and ties them to what they read. The caller has checked
    /// the ids and indices.
    pub(crate) fn add_op(&mut self, spec: &OpSpec<'_>, expected: Expected) -> Result<OpId, Error> {
        // Ids run out in one place, so that nothing half made is left behind.
        let headroom = |len: usize, more: usize| len.saturating_add(more) < NONE as usize;
        if !headroom(self.ops.len(), 1)
            || !headroom(self.tensors.len(), spec.outputs.len())
            || !headroom(self.storages.len(), spec.outputs.len())
        {
            return Err(Error::Overflow);
        }
        let id = self.open_op(spec, expected)?;
        self.link_inputs(id, spec.inputs);
        self.take_blocks(id, spec)?;
        for index in 0..spec.outputs.len() {
            let (storage, made) = self.output_storage(spec, index)?;
            let tensor = self.add_tensor(storage, Some(id))?;
            let op = &mut self[id];
            op.outputs.push(tensor);
            op.made.push(made);
        }
        self.charge(id, expected.cost.0 as i64);
        Ok(id)
    }

    /// A record without inputs and outputs.
    fn open_op(&mut self, spec: &OpSpec<'_>, expected: Expected) -> Result<OpId, Error> {
        let id = match self.free_ops.pop() {
            Some(id) => id,
            None => {
                let id = OpId(next_id(self.ops.len())?);
                self.ops.push(Op::default());
                id
            }
        };
        self.live_ops += 1;
        let op = &mut self[id];
        op.renew();
        op.made.reserve_exact(spec.outputs.len());
        op.cost = expected.cost.0;
        op.workspace = spec.workspace.0;
        op.workspace_device = spec.workspace_device.0;
        op.kind = expected.kind;
        op.constant = spec.replay == Replay::Forbidden;
        Ok(id)
    }

    fn link_inputs(&mut self, op: OpId, inputs: &[TensorId]) {
        self[op].inputs.extend_from_slice(inputs);
        for (index, &input) in inputs.iter().enumerate() {
            let storage = self.storage_of(input);
            self.next[storage.index()][Way::Descendants as usize].known = false;
            let storage = &mut self.storages[storage.index()];
            let place = storage.readers.len() as u32;
            let index = index as u32;
            storage.readers.push(Reader { op, index });
            self[op].places.push(place);
            self[input].uses += 1;
        }
    }

    /// New storages for the blocks that the op writes into; the first output that names a block takes it.
    fn take_blocks(&mut self, id: OpId, spec: &OpSpec<'_>) -> Result<(), Error> {
        self.taken.clear();
        for (index, output) in spec.outputs.iter().enumerate() {
            let Output::InPlace { of } = *output else {
                continue;
            };
            let old = self.storage_of(spec.inputs[of]);
            if self.taken.iter().any(|&(taken, ..)| taken == old) {
                continue;
            }
            let (bytes, device, pinned) = {
                let old = &self[old];
                (Bytes(old.bytes), DeviceId(old.device), old.pinned)
            };
            let new = self.add_storage(bytes, device)?;
            self.taken.push((old, new, index));
            if pinned {
                self[id].constant = true;
            }
        }
        Ok(())
    }

    fn output_storage(
        &mut self,
        spec: &OpSpec<'_>,
        index: usize,
    ) -> Result<(StorageId, Made), Error> {
        let of = match spec.outputs[index] {
            Output::Fresh { bytes, device } => {
                return Ok((self.add_storage(bytes, device)?, Made::Fresh));
            }
            Output::Alias { of } | Output::InPlace { of } => of,
        };
        let old = self.storage_of(spec.inputs[of]);
        match self.taken.iter().find(|&&(taken, ..)| taken == old) {
            Some(&(_, new, taker)) if taker == index => Ok((new, Made::InPlace(of as u32))),
            Some(&(_, new, _)) => Ok((new, Made::Alias)),
            None => Ok((old, Made::Alias)),
        }
    }

    /// Adds to the cost of each storage that the op makes a view of, once a storage (DTR appendix C.2).
    pub(crate) fn charge(&mut self, op: OpId, delta: i64) {
        if delta == 0 {
            return;
        }
        if let &[output] = &self[op].outputs[..] {
            let storage = self.storage_of(output);
            let cost = &mut self[storage].cost;
            *cost = cost.wrapping_add_signed(delta);
            return;
        }
        let stamp = self.new_stamp();
        let Graph {
            ops,
            tensors,
            storages,
            ..
        } = self;
        for output in &ops[op.index()].outputs {
            let storage = &mut storages[tensors[output.index()].storage.index()];
            if std::mem::replace(&mut storage.stamp, stamp) != stamp {
                storage.cost = storage.cost.wrapping_add_signed(delta);
            }
        }
    }

    /// Unties an op from what it reads. Its inputs lose a use each; the caller looks after those that lost the last.
    pub(crate) fn untie(&mut self, op: OpId) {
        for index in (0..self[op].inputs.len()).rev() {
            let input = self[op].inputs[index];
            let place = self[op].places[index] as usize;
            let storage = self.storage_of(input);
            self.next[storage.index()][Way::Descendants as usize].known = false;
            let storage = &mut self[storage];
            let readers = &mut storage.readers;
            readers.swap_remove(place);
            if let Some(&moved) = readers.get(place) {
                self[moved.op].places[moved.index as usize] = place as u32;
            }
            self[input].uses -= 1;
        }
    }

    /// No op makes the tensor any more.
    pub(crate) fn unmake(&mut self, tensor: TensorId) {
        let storage = self.storage_of(tensor);
        self.next[storage.index()][Way::Ancestors as usize].known = false;
        self[tensor].op = None;
    }

    /// Takes a tensor off its storage's views; true when it was the last.
    pub(crate) fn unview(&mut self, tensor: TensorId) -> bool {
        let (storage, place) = {
            let tensor = &mut self[tensor];
            tensor.used = false;
            (tensor.storage, tensor.place as usize)
        };
        self.next[storage.index()][Way::Ancestors as usize].known = false;
        let storage = &mut self[storage];
        let views = &mut storage.views;
        views.swap_remove(place);
        let last = views.is_empty();
        if let Some(&moved) = views.get(place) {
            self[moved].place = place as u32;
        }
        last
    }
}

fn next_id(len: usize) -> Result<u32, Error> {
    u32::try_from(len)
        .ok()
        .filter(|&id| id != NONE)
        .ok_or(Error::Overflow)
}
