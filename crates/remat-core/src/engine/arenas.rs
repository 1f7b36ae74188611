//! Arenas as a front end sees them: where blocks are planned, and where they are.

use super::contract::Engine;
use super::validity::{check_size, check_tensor};
use crate::arena::{Observed, Placement};
use crate::error::Error;
use crate::graph::{NOWHERE, Phase};
use crate::ids::{Bytes, DeviceId, OpId, StorageId, TensorId};
use crate::pool::Pool;

impl Engine {
    /// Where the latest plan puts what its steps make, in the order of [`steps`](Engine::steps); last, those of the op
    /// begun.
    pub fn placements(&self) -> &[Placement] {
        &self.state.demand.placements
    }

    /// The blocks of a device's arena as an allocator really has them, in address order and without the free ones; what
    /// no storage owns is workspace or another's. From now on decisions go by them. Once blocks were told, storages
    /// need not have one (they may lie outside of the arena), and only the allocator keeps them apart.
    ///
    /// Takes O(n log n) for n blocks.
    ///
    /// # Errors
    /// [`Error::Protocol`] for a device that is no arena, and for blocks that overlap, are out of order, misaligned or
    /// beyond the end; the arena then holds those before.
    pub fn observe(&mut self, device: DeviceId, blocks: &[Observed]) -> Result<(), Error> {
        self.state.open_call();
        self.state.observe(device.0, blocks)
    }

    /// [`constant`](Engine::constant) for bytes that are there already and need no room: outside of the arena, or in it
    /// where the next [`observe`](Engine::observe) tells. No steps follow.
    ///
    /// # Errors
    /// [`Error::Overflow`] for sizes beyond 63 bits.
    pub fn constant_elsewhere(
        &mut self,
        bytes: Bytes,
        device: DeviceId,
    ) -> Result<TensorId, Error> {
        let tensor = self.add_elsewhere(bytes, device)?;
        if let Some(guides) = &mut self.guides {
            guides.constant(&self.state.graph, tensor);
        }
        Ok(tensor)
    }

    /// A [constant elsewhere](Engine::constant_elsewhere) has so many bytes from now on, as if it were released and
    /// another one were told. It has one reference, and no op read it. No steps follow.
    ///
    /// # Errors
    /// [`Error::Protocol`] for any other tensor, [`Error::Overflow`] for sizes beyond 63 bits.
    pub fn resize_elsewhere(&mut self, constant: TensorId, bytes: Bytes) -> Result<(), Error> {
        check_size(bytes.0)?;
        check_tensor(&self.state, constant)?;
        let graph = &self.state.graph;
        let (tensor, storage) = (&graph[constant], &graph[graph.storage_of(constant)]);
        let unread = tensor.uses == 0 && tensor.refs == 1 && storage.live_views == 1;
        if !unread
            || tensor.op.is_some()
            || !storage.pinned
            || self.state.arenas.has(storage.device)
        {
            return Err(Error::Protocol(
                "only a constant elsewhere that no op read has another size",
            ));
        }
        let (device, before) = (storage.device, storage.bytes);
        self.state.open_call();
        if let Some(guides) = &mut self.guides {
            guides.release(&self.state.graph, constant);
        }
        let storage = self.state.graph.storage_of(constant);
        self.state.shrink(device, before);
        self.state.graph[storage].bytes = bytes.0;
        self.state.grow(device, bytes.0);
        if let Some(guides) = &mut self.guides {
            guides.constant(&self.state.graph, constant);
        }
        Ok(())
    }

    /// A constant of which no guide is told yet.
    pub(super) fn add_elsewhere(
        &mut self,
        bytes: Bytes,
        device: DeviceId,
    ) -> Result<TensorId, Error> {
        check_size(bytes.0)?;
        self.state.open_call();
        self.state.add_constant(bytes, device)
    }

    /// An op takes more workspace than was known: its replays will reserve so much.
    ///
    /// # Errors
    /// [`Error::Protocol`] for an unknown op, [`Error::Overflow`] for sizes beyond 63 bits.
    pub fn set_workspace(&mut self, op: OpId, bytes: Bytes) -> Result<(), Error> {
        check_size(bytes.0)?;
        let record = self.state.graph.ops.get_mut(op.index());
        let done = record.filter(|record| record.phase == Phase::Done);
        done.ok_or(Error::Protocol("only an op that ran has replays"))?
            .workspace = bytes.0;
        Ok(())
    }

    /// The storage's bytes are known by their address to somebody: they are not moved from now on.
    ///
    /// # Errors
    /// [`Error::Protocol`] for an unknown tensor.
    pub fn fix(&mut self, tensor: TensorId) -> Result<(), Error> {
        check_tensor(&self.state, tensor)?;
        let storage = self.state.graph.storage_of(tensor);
        self.state.graph[storage].fixed = true;
        Ok(())
    }

    /// Where a storage is in its device's arena; `None` if it is not resident, has no bytes, or the device is no arena.
    pub fn address(&self, storage: StorageId) -> Option<u64> {
        let storage = self.state.graph.storages.get(storage.index())?;
        (storage.resident && storage.address != NOWHERE).then_some(storage.address)
    }

    /// The arena of a device: its blocks, free and taken.
    pub fn arena(&self, device: DeviceId) -> Option<&Pool> {
        self.state.arenas.get(device.0).map(|arena| &arena.pool)
    }

    /// The taken blocks of a device's arena that are no storage's, in address order: address and bytes. Those of ops
    /// under way are among them.
    pub fn unowned(&self, device: DeviceId) -> Vec<(u64, u64)> {
        let Some(arena) = self.state.arenas.get(device.0) else {
            return Vec::new();
        };
        let blocks = arena.pool.blocks().filter(|(.., taken)| *taken);
        let unowned = blocks.filter(|&(address, ..)| arena.owner_at(address).is_none());
        unowned
            .map(|(address, bytes, _)| (address, bytes))
            .collect()
    }

    /// Whether blocks are moved in arenas.
    pub fn moves_blocks(&self) -> bool {
        self.state.arenas.moves_blocks()
    }

    /// Nanoseconds that searches took by the [stopwatch](crate::Config::stopwatch), those of plans that came to nothing
    /// included.
    pub fn search_time(&self) -> u64 {
        self.state.demand.search_time
    }

    /// Nanoseconds that laying out replays and evictions took by the [stopwatch](crate::Config::stopwatch), searches
    /// and plans that came to nothing included. Ops that need neither are not counted.
    pub fn planning_time(&self) -> u64 {
        self.state.demand.planning_time
    }

    /// Whether arenas are as they should be: no two blocks overlap, each resident storage has one of its own. For tests
    /// and checking builds; takes time linear in all storages.
    ///
    /// # Errors
    /// The first contradiction found.
    pub fn check(&self) -> Result<(), String> {
        self.state.arenas.check(&self.state.graph)
    }
}
