//! Changes of blocks, each journaled: a plan is laid out with the addresses that it will have.

use super::state::State;
use crate::graph::{Made, NOWHERE};
use crate::ids::{OpId, StorageId};
use crate::journal::Entry;
use crate::pool::{Fit, Side};

impl State {
    /// The storage's block is the one at this address from now on; before it was reserved, or another's who gave it up.
    pub(crate) fn set_address(&mut self, s: StorageId, address: u64) {
        let before = self.graph[s].address;
        self.journal.write(Entry::Address(s, before));
        self.change_address(s, address);
    }

    fn change_address(&mut self, s: StorageId, address: u64) {
        let storage = &mut self.graph[s];
        let before = std::mem::replace(&mut storage.address, address);
        if let Some(arena) = self.arenas.get_mut(storage.device) {
            if before != NOWHERE && arena.owner_at(before) == Some(s) {
                arena.set_owner(before, None);
            }
            if address != NOWHERE {
                arena.set_owner(address, Some(s));
            }
        }
        self.weigh_gaps_of(s);
    }

    /// Frees a block that is nobody's.
    pub(crate) fn free_block(&mut self, device: u8, address: u64) {
        let Some(arena) = self.arenas.get_mut(device) else {
            return;
        };
        // Blocks that are freed here were taken here: an error would mean that one was freed twice, and the account is
        // right as it is.
        if let Ok(bytes) = arena.pool.free(address) {
            self.journal.write_freed(device, address, bytes);
            self.weigh_gaps_beside(device, address);
        }
    }

    /// The storage gives its block back, if it has one.
    pub(crate) fn vacate(&mut self, s: StorageId) {
        let storage = &self.graph[s];
        let (device, address) = (storage.device, storage.address);
        if address != NOWHERE {
            self.set_address(s, NOWHERE);
            self.free_block(device, address);
        }
    }

    /// The new value takes over the block of the old one (Coop section 3.5).
    pub(super) fn hand_block_over(&mut self, old: StorageId, new: StorageId) {
        // Who knows the address may look there again.
        self.graph[new].fixed |= self.graph[old].fixed;
        let address = self.graph[old].address;
        if address != NOWHERE {
            self.set_address(old, NOWHERE);
            self.set_address(new, address);
        }
    }

    /// Takes a free block; its address, if one is large enough.
    pub(crate) fn take_block(&mut self, device: u8, bytes: u64, side: Side) -> Option<u64> {
        let arena = self.arenas.get_mut(device)?;
        let address = arena.pool.allocate(bytes, Fit::First, side)?;
        self.note_taken(device, address);
        Some(address)
    }

    /// Takes the block at an address, if it is free.
    pub(crate) fn take_block_at(&mut self, device: u8, address: u64, bytes: u64) -> Option<u64> {
        let arena = self.arenas.get_mut(device)?;
        arena.pool.allocate_at(address, bytes).ok()?;
        self.note_taken(device, address);
        Some(address)
    }

    fn note_taken(&mut self, device: u8, address: u64) {
        if let Some(arena) = self.arenas.get_mut(device) {
            arena.set_owner(address, None);
        }
        self.journal.write(Entry::Taken(device, address));
        self.weigh_gaps_beside(device, address);
    }

    pub(super) fn undo_block(&mut self, entry: Entry) {
        match entry {
            Entry::Taken(device, address) => {
                if let Some(arena) = self.arenas.get_mut(device) {
                    let freed = arena.pool.free(address);
                    debug_assert!(freed.is_ok(), "{freed:?}");
                }
                self.weigh_gaps_beside(device, address);
            }
            Entry::Freed(device, address) => {
                let bytes = self.journal.freed.pop().unwrap_or(0);
                if let Some(arena) = self.arenas.get_mut(device) {
                    let taken = arena.pool.allocate_at(address, bytes);
                    debug_assert!(taken.is_ok(), "{taken:?}");
                    arena.set_owner(address, None);
                }
                self.weigh_gaps_beside(device, address);
            }
            Entry::Address(s, before) => self.change_address(s, before),
            Entry::Counted => {
                if let Some(before) = self.journal.counters.pop() {
                    self.counters = before;
                }
            }
            Entry::Capacity(device, before) => self.set_capacity(device, before),
            _ => {}
        }
    }

    /// Frees the blocks that the plan so far took and nobody owns: those of an op that it was about to replay when it
    /// was cut short.
    pub(super) fn free_orphaned_blocks(&mut self) {
        for index in 0..self.journal.entries.len() {
            if let Entry::Taken(device, address) = self.journal.entries[index] {
                let reserved = self.arenas.get(device).is_some_and(|arena| {
                    arena.pool.size_of(address).is_some() && arena.owner_at(address).is_none()
                });
                if reserved {
                    self.free_block(device, address);
                }
            }
        }
    }

    /// The op was announced: the blocks requested are its outputs' from now on, though they are not computed yet.
    pub(crate) fn assign_blocks(&mut self, op: OpId) {
        for index in 0..self.demand.requests.len() {
            let request = self.demand.requests[index];
            match request.output {
                Some(output) => {
                    let s = self.graph.output(op, output as usize);
                    self.set_address(s, request.address);
                }
                None => {
                    self.graph[op].workspace_address = request.address;
                    self.arenas.working.push(op);
                }
            }
        }
        self.demand.note_placements(self.steps.len());
    }

    /// The block just requested is the constant's.
    pub(crate) fn assign_constant(&mut self, s: StorageId) {
        if let Some(request) = self.demand.requests.first() {
            self.set_address(s, request.address);
        }
    }

    /// The op was replayed: outputs that were missing keep their blocks, all others are free again.
    pub(super) fn install_blocks(&mut self, op: OpId) {
        let step = self.steps.len().saturating_sub(1);
        self.demand.note_placements(step);
        for index in 0..self.demand.requests.len() {
            let request = self.demand.requests[index];
            let output = request.output.map(|output| output as usize);
            match output.map(|output| self.graph.output(op, output)) {
                Some(s) if !self.graph[s].resident => self.set_address(s, request.address),
                _ => self.free_block(request.device, request.address),
            }
        }
        self.demand.requests.clear();
    }

    /// Frees the workspace of an op that was open.
    pub(super) fn free_workspace(&mut self, op: OpId) {
        let record = &mut self.graph[op];
        let device = record.workspace_device;
        let address = std::mem::replace(&mut record.workspace_address, NOWHERE);
        if address != NOWHERE {
            self.arenas.working.retain(|&other| other != op);
            self.free_block(device, address);
        }
    }

    /// Frees all that an open op took.
    pub(super) fn free_taken_blocks(&mut self, op: OpId) {
        self.free_workspace(op);
        for index in 0..self.graph[op].outputs.len() {
            if self.graph[op].made[index] == Made::Fresh {
                self.vacate(self.graph.output(op, index));
            }
        }
    }

    /// An output has another size than was announced: its block shrinks, grows, or is to be found anew.
    pub(super) fn resize_block(&mut self, s: StorageId, bytes: u64) {
        let storage = &self.graph[s];
        let (device, address) = (storage.device, storage.address);
        if !self.arenas.has(device) {
            return;
        }
        self.vacate(s);
        if bytes == 0 || bytes < self.arenas.smallest {
            return;
        }
        let Some(arena) = self.arenas.get_mut(device) else {
            return;
        };
        if address != NOWHERE && arena.pool.allocate_at(address, bytes).is_ok() {
            self.note_taken(device, address);
            return self.set_address(s, address);
        }
        match self.take_block(device, bytes, Side::Low) {
            Some(address) => self.set_address(s, address),
            None if self.arenas.observed => {} // it is somewhere: the front end will tell
            None => self.arenas.unplaced.push(s),
        }
    }

    /// Moves the end of a device's arena; nothing is taken beyond it.
    pub(crate) fn move_end(&mut self, device: u8, end: u64) {
        if let Some(arena) = self.arenas.get(device) {
            let before = arena.pool.capacity();
            self.journal.write(Entry::Capacity(device, before));
            self.set_capacity(device, end);
        }
    }

    /// Moves the end of a device's arena, if it has one, without a trace in the journal.
    pub(crate) fn set_capacity(&mut self, device: u8, capacity: u64) {
        if let Some(arena) = self.arenas.get_mut(device) {
            let moved = arena.pool.set_capacity(capacity.min(i64::MAX as u64));
            debug_assert!(moved.is_ok(), "{moved:?}");
            let end = arena.pool.capacity();
            self.weigh_gaps_beside(device, end.saturating_sub(1));
        }
    }

    /// The free bytes beside the neighbours of a block that was taken or freed have changed, which count into their
    /// size where the policy has it so.
    fn weigh_gaps_beside(&mut self, device: u8, address: u64) {
        if self.arenas.count_gaps() {
            let owners = self.arenas.owners_beside(device, address);
            for s in owners.into_iter().flatten() {
                self.weigh_gaps_of(s);
            }
        }
    }

    /// Brings the size that a storage is scored by up to date.
    pub(super) fn weigh_gaps_of(&mut self, s: StorageId) {
        if self.arenas.count_gaps() {
            let bytes = self.arenas.scored_bytes(&self.graph[s]);
            self.eviction.candidates.set_bytes(&self.graph, s, bytes);
        }
    }
}
