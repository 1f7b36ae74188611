//! Questions that a front end may ask.

use super::contract::Engine;
use crate::counters::{Counters, Refused};
use crate::graph::{Phase, Storage};
use crate::ids::{Bytes, DeviceId, OpId, StorageId, TensorId};

impl Engine {
    /// Tensors an op has made, in output order; none for an unknown op.
    pub fn outputs(&self, op: OpId) -> &[TensorId] {
        self.state
            .graph
            .ops
            .get(op.index())
            .map_or(&[], |record| &record.outputs)
    }

    /// Tensors an op reads, in input order; none for an unknown op.
    pub fn inputs(&self, op: OpId) -> &[TensorId] {
        self.state
            .graph
            .ops
            .get(op.index())
            .map_or(&[], |record| &record.inputs)
    }

    /// The storage that a tensor views; `None` for an unknown tensor.
    pub fn storage(&self, tensor: TensorId) -> Option<StorageId> {
        let record = self.state.graph.tensors.get(tensor.index());
        record.map(|record| record.storage)
    }

    fn record(&self, storage: StorageId) -> Option<&Storage> {
        self.state.graph.storages.get(storage.index())
    }

    /// Size of a storage; 0 for an unknown one.
    pub fn bytes(&self, storage: StorageId) -> Bytes {
        Bytes(self.record(storage).map_or(0, |record| record.bytes))
    }

    /// Whether the storage's bytes are there.
    pub fn is_resident(&self, storage: StorageId) -> bool {
        self.record(storage).is_some_and(|record| record.resident)
    }

    /// Whether the tensor can be read now: its storage is resident and its op ran since (DTR appendix C.1).
    pub fn is_defined(&self, tensor: TensorId) -> bool {
        self.state
            .graph
            .tensors
            .get(tensor.index())
            .is_some_and(|record| record.used && record.defined)
    }

    /// Storages that the latest call pinned: those that it was asked to pin, and those whose sources it overwrote.
    /// Nothing brings back a constant that they are computed from, so a front end keeps these alive.
    pub fn newly_pinned(&self) -> &[StorageId] {
        &self.state.collection.pinned
    }

    /// Whether the op was begun and neither finished nor cancelled.
    pub fn is_open(&self, op: OpId) -> bool {
        let record = self.state.graph.ops.get(op.index());
        record.is_some_and(|record| record.phase == Phase::Open)
    }

    /// Whether the storage is pinned (constant).
    pub fn is_pinned(&self, storage: StorageId) -> bool {
        self.record(storage).is_some_and(|record| record.pinned)
    }

    /// Bytes resident and reserved in a device.
    pub fn memory(&self, device: DeviceId) -> Bytes {
        Bytes(self.state.accounts.get(device.0).memory)
    }

    /// Highest `memory` so far.
    pub fn peak(&self, device: DeviceId) -> Bytes {
        Bytes(self.state.accounts.get(device.0).peak)
    }

    /// Budget of a device.
    pub fn budget(&self, device: DeviceId) -> Option<Bytes> {
        self.state.accounts.get(device.0).budget.map(Bytes)
    }

    /// Whether no op is open or remembered, and no step is recorded or followed: all that is resident is constant, and
    /// nothing is evicted that could come back. Steps may be sought, and there may be plans if steps are learned: of
    /// twice as many ops as the longest of them has, none was as planned.
    ///
    /// Ops may run then of which the engine is not told, but [that they run](Engine::note_gap).
    pub fn is_idle(&self) -> bool {
        let learns = self.learns.is_some();
        let guides = self.guides.as_ref();
        self.state.graph.live_ops == 0 && guides.is_none_or(|guides| guides.are_idle(learns))
    }

    /// Whether a tensor is of a constant, and no remembered op reads that constant.
    pub fn is_unread_constant(&self, tensor: TensorId) -> bool {
        let graph = &self.state.graph;
        graph.tensors.get(tensor.index()).is_some_and(|tensor| {
            let storage = &graph[tensor.storage];
            storage.pinned && storage.readers.is_empty()
        })
    }

    /// The virtual clock: 1 + the cost of all ops run so far.
    pub fn clock(&self) -> u64 {
        self.state.clock
    }

    /// Counters.
    pub fn counters(&self) -> Counters {
        self.state.counters
    }

    /// How far the latest refused plan had got.
    pub fn refused(&self) -> Option<Refused> {
        self.state.refused
    }
}
