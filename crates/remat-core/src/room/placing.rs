//! Blocks for what an op makes and works in, and for constants.

use crate::arena::blocks::NOWHERE;
use crate::graph::Made;
use crate::journal::Entry;
use crate::pool::{End, Fit};
use crate::transaction::state::{State, Stop};
use crate::{Mutation, OpId, StorageId};

/// A block that an op needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pool: u8,
    pub(crate) bytes: u64,
    end: End,
    /// For which output; `None`: for the workspace.
    pub(crate) output: Option<u32>,
    pub(crate) address: u64,
}

impl State {
    /// Lists the blocks that an op needs, the largest first: what is left of their windows takes the small ones. Outputs that are there
    /// already are made once more and dropped.
    pub(crate) fn request_blocks(&mut self, op: OpId, mutation: Mutation) {
        self.arenas.requests.clear();
        if !self.arenas.any() {
            return;
        }
        for index in 0..self.graph.ops[op.index()].outputs.len() {
            let record = &self.graph.ops[op.index()];
            let takes = match record.made[index] {
                Made::Fresh => true,
                Made::Alias => false,
                Made::InPlace(_) => mutation == Mutation::Copy,
            };
            let s = self.graph.storage_of(record.outputs[index]);
            let storage = &self.graph.storages[s.index()];
            let (pool, bytes) = (storage.pool, storage.bytes);
            if takes {
                let end = self.end_of(op, pool, bytes);
                self.request(pool, bytes, end, Some(index as u32));
            }
        }
        let record = &self.graph.ops[op.index()];
        let (pool, bytes) = (record.workspace_pool, record.workspace);
        let end = self.end_of(op, pool, bytes);
        self.request(pool, bytes, end, None);
        self.arenas
            .requests
            .sort_by_key(|request| std::cmp::Reverse(request.bytes));
    }

    fn request(&mut self, pool: u8, bytes: u64, end: End, output: Option<u32>) {
        if bytes > 0 && bytes >= self.arenas.smallest && self.arenas.has(pool) {
            self.arenas.requests.push(Request {
                pool,
                bytes,
                end,
                output,
                address: NOWHERE,
            });
        }
    }

    /// Takes a block for each request, evicting where there is none.
    pub(crate) fn place_requests(&mut self) -> Result<(), Stop> {
        for index in 0..self.arenas.requests.len() {
            let Request {
                pool, bytes, end, ..
            } = self.arenas.requests[index];
            let address = self.find_block(pool, bytes, end)?;
            self.arenas.requests[index].address = address;
        }
        Ok(())
    }

    /// The op was announced: the blocks are its outputs' from now on, though they are not computed yet.
    pub(crate) fn assign_blocks(&mut self, op: OpId) {
        for index in 0..self.arenas.requests.len() {
            let Request {
                output, address, ..
            } = self.arenas.requests[index];
            match output {
                Some(output) => {
                    let output = self.graph.ops[op.index()].outputs[output as usize];
                    self.set_address(self.graph.storage_of(output), address);
                }
                None => {
                    self.graph.ops[op.index()].workspace_address = address;
                    self.arenas.working.push(op);
                }
            }
        }
        self.note_placements(self.steps.len());
    }

    /// The op was replayed: what came back keeps its blocks, all others are free again.
    pub(crate) fn install_blocks(
        &mut self,
        op: OpId,
        came_back: impl Fn(&State, StorageId) -> bool,
    ) {
        self.note_placements(self.steps.len().saturating_sub(1));
        for index in 0..self.arenas.requests.len() {
            let Request {
                pool,
                output,
                address,
                ..
            } = self.arenas.requests[index];
            let output = output.map(|output| self.graph.ops[op.index()].outputs[output as usize]);
            match output.map(|output| self.graph.storage_of(output)) {
                Some(s) if came_back(self, s) => self.set_address(s, address),
                _ => self.free_block(pool, address),
            }
        }
        self.arenas.requests.clear();
    }

    /// Frees the workspace of an op that was open.
    pub(crate) fn free_workspace(&mut self, op: OpId) {
        let record = &mut self.graph.ops[op.index()];
        let pool = record.workspace_pool;
        let address = std::mem::replace(&mut record.workspace_address, NOWHERE);
        if address != NOWHERE {
            self.arenas.working.retain(|&other| other != op);
            self.free_block(pool, address);
        }
    }

    /// Frees all that an open op took.
    pub(crate) fn free_taken_blocks(&mut self, op: OpId) {
        self.free_workspace(op);
        for index in 0..self.graph.ops[op.index()].outputs.len() {
            let record = &self.graph.ops[op.index()];
            if record.made[index] == Made::Fresh {
                self.vacate(self.graph.storage_of(record.outputs[index]));
            }
        }
    }

    /// A block for a constant of so many bytes, from the end where those are.
    pub(crate) fn request_constant(&mut self, pool: u8, bytes: u64) -> Result<(), Stop> {
        self.arenas.requests.clear();
        self.request(pool, bytes, End::Low, None);
        self.place_requests()
    }

    /// The block just requested is the constant's.
    pub(crate) fn assign_constant(&mut self, s: StorageId) {
        if let Some(request) = self.arenas.requests.first() {
            self.set_address(s, request.address);
        }
    }

    /// An output has another size than was announced: its block shrinks, grows, or is to be found anew.
    pub(crate) fn resize_block(&mut self, s: StorageId, bytes: u64) {
        let storage = &self.graph.storages[s.index()];
        let (pool, address) = (storage.pool, storage.address);
        if !self.arenas.has(pool) {
            return;
        }
        self.vacate(s);
        if bytes == 0 || bytes < self.arenas.smallest {
            return;
        }
        let Some(arena) = self.arenas.arena(pool) else {
            return;
        };
        if address != NOWHERE && arena.pool.allocate_at(address, bytes).is_ok() {
            self.note_taken(pool, address);
            return self.set_address(s, address);
        }
        match arena.pool.allocate(bytes, Fit::First, End::Low) {
            Some(address) => {
                self.note_taken(pool, address);
                self.set_address(s, address);
            }
            None if self.arenas.observed => {} // it is somewhere: the front end will tell
            None => self.arenas.homeless.push(s),
        }
    }

    /// Finds blocks for what turned out larger than announced.
    pub(crate) fn house_homeless(&mut self) -> Result<(), Stop> {
        while let Some(&s) = self.arenas.homeless.last() {
            let storage = &self.graph.storages[s.index()];
            let (pool, bytes, resident) = (storage.pool, storage.bytes, storage.resident);
            if resident && storage.used && storage.address == NOWHERE {
                self.lock(s);
                let found = self.find_block(pool, bytes, End::Low);
                self.unlock(s);
                let address = found?;
                self.set_address(s, address);
            }
            self.arenas.homeless.pop();
        }
        Ok(())
    }

    /// Takes a block of so many bytes, evicting if there is none.
    pub(crate) fn find_block(&mut self, pool: u8, bytes: u64, end: End) -> Result<u64, Stop> {
        let end = if self.arenas.from_below {
            End::Low
        } else {
            end
        };
        let Some(arena) = self.arenas.arena(pool) else {
            return Err(Stop::Short(pool));
        };
        let address = match arena.pool.allocate(bytes, Fit::First, end) {
            Some(address) => {
                self.note_taken(pool, address);
                address
            }
            None if self.unlimited => return Err(Stop::Short(pool)),
            None => self.meet_shortage(pool, bytes, end)?,
        };
        if self.unlimited {
            let size = self
                .arenas
                .get(pool)
                .and_then(|arena| arena.pool.size_of(address));
            let account = self.pool(pool);
            account.high = account.high.max(address + size.unwrap_or(0));
        }
        Ok(address)
    }

    /// Budgets are not looked at from now on: arenas are as large as can be, and blocks are placed as low as can be.
    pub(crate) fn lift_limits(&mut self) {
        self.unlimited = true;
        self.arenas.from_below = true;
        for pool in 0..self.pools.len() {
            self.set_capacity(pool as u8, i64::MAX as u64);
        }
    }

    /// Undoes [`lift_limits`](Self::lift_limits), once what was laid out since was rolled back.
    pub(crate) fn restore_limits(&mut self) {
        self.unlimited = false;
        self.arenas.from_below = false;
        for pool in 0..self.pools.len() {
            self.set_capacity(pool as u8, self.pools[pool].budget.unwrap_or(u64::MAX));
        }
    }

    /// Evicts all that lies beyond a new end of a pool's arena.
    ///
    /// # Errors
    /// Where the highest block ends, if not all can be evicted.
    pub(crate) fn clear_beyond(&mut self, pool: u8, end: u64) -> Result<(), u64> {
        while let Some(s) = self.evictable_beyond(pool, end) {
            self.evict(s);
        }
        let blocks = self
            .arenas
            .get(pool)
            .into_iter()
            .flat_map(|arena| arena.pool.blocks());
        let top = blocks.filter(|(.., taken)| *taken).last();
        match top.map_or(0, |(address, bytes, _)| address + bytes) {
            top if top > end => Err(top),
            _ => Ok(()),
        }
    }

    /// Moves the end of a pool's arena; nothing is taken beyond it.
    pub(crate) fn move_end(&mut self, pool: u8, end: u64) {
        if let Some(arena) = self.arenas.get(pool) {
            self.journal
                .write(Entry::Capacity(pool, arena.pool.capacity()));
            self.set_capacity(pool, end);
        }
    }

    /// Moves the end of a pool's arena, if it is one; nothing is taken beyond it.
    pub(crate) fn set_capacity(&mut self, pool: u8, capacity: u64) {
        if let Some(arena) = self.arenas.arena(pool) {
            let moved = arena.pool.set_capacity(capacity.min(i64::MAX as u64));
            debug_assert!(moved.is_ok(), "{moved:?}");
            let end = arena.pool.capacity();
            self.weigh_gaps_beside(pool, end.saturating_sub(1));
        }
    }

    /// Tries another budget on.
    pub(crate) fn set_limit(&mut self, pool: usize, budget: u64) {
        self.pools[pool].budget = Some(budget);
        self.set_capacity(pool as u8, budget);
    }

    /// A candidate of which the block ends beyond an address.
    fn evictable_beyond(&self, pool: u8, end: u64) -> Option<StorageId> {
        let arena = self.arenas.get(pool)?;
        let mut candidates = self.candidates.of(pool).map(|(_, s)| s);
        candidates.find(|s| {
            let address = self.graph.storages[s.index()].address;
            let bytes = arena.pool.size_of(address).unwrap_or(0);
            address != NOWHERE && address + bytes > end
        })
    }
}
