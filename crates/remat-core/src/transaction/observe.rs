//! Blocks as a real allocator has them.

use super::state::State;
use crate::arena::Observed;
use crate::error::Error;
use crate::graph::NOWHERE;
use crate::ids::StorageId;

impl State {
    /// Blocks are where they are from now on.
    pub(crate) fn observe(&mut self, device: u8, blocks: &[Observed]) -> Result<(), Error> {
        if !self.arenas.has(device) {
            return Err(Error::Protocol(
                "blocks are told of a device that is no arena",
            ));
        }
        self.arenas.observed = true;
        self.arenas.unplaced.clear();
        // Workspace is not reserved where blocks are told.
        while let Some(op) = self.arenas.working.pop() {
            self.graph[op].workspace_address = NOWHERE;
        }
        self.drop_unseen(device, blocks);
        for block in blocks {
            self.observe_block(device, block)?;
        }
        Ok(())
    }

    fn observe_block(&mut self, device: u8, block: &Observed) -> Result<(), Error> {
        let Observed {
            address,
            bytes,
            owner,
        } = *block;
        let Some(arena) = self.arenas.get_mut(device) else {
            return Ok(());
        };
        let known = arena.pool.size_of(address) == Some(bytes.0);
        if !known && arena.pool.allocate_at(address, bytes.0).is_err() {
            return Err(Error::Protocol("blocks are told that cannot lie so"));
        }
        if !known || arena.owner_at(address) != owner {
            self.change_owner(device, address, owner);
        }
        Ok(())
    }

    /// Frees the blocks that are not among those told.
    fn drop_unseen(&mut self, device: u8, blocks: &[Observed]) {
        let mut unseen = std::mem::take(&mut self.demand.evicted);
        unseen.clear();
        let Some(arena) = self.arenas.get(device) else {
            return;
        };
        let mut told = blocks.iter().peekable();
        for (address, bytes, _) in arena.pool.blocks().filter(|(.., taken)| *taken) {
            while told.next_if(|block| block.address < address).is_some() {}
            let there = told
                .peek()
                .is_some_and(|block| (block.address, block.bytes.0) == (address, bytes));
            if !there {
                unseen.push((address, bytes));
            }
        }
        for &(address, _) in &unseen {
            self.change_owner(device, address, None);
            self.free_block(device, address);
        }
        self.demand.evicted = unseen;
    }

    fn change_owner(&mut self, device: u8, address: u64, owner: Option<StorageId>) {
        let arena = self.arenas.get(device);
        let before = arena.and_then(|arena| arena.owner_at(address));
        if let Some(before) = before.filter(|&before| Some(before) != owner) {
            self.graph[before].address = NOWHERE;
            self.weigh_gaps_of(before);
        }
        if let Some(arena) = self.arenas.get_mut(device) {
            arena.set_owner(address, None);
        }
        let known = |s: StorageId| self.graph.storages.get(s.index());
        let of_device = |s: &StorageId| {
            known(*s).is_some_and(|storage| storage.used && storage.device == device)
        };
        if let Some(s) = owner.filter(of_device) {
            self.set_address(s, address);
        }
    }
}
