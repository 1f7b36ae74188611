//! Budgets that are lifted, moved and tried on.

use crate::arena::{Movable, Sides};
use crate::error::Error;
use crate::graph::NOWHERE;
use crate::ids::{Bytes, DeviceId, StorageId};
use crate::transaction::{Limits, State, Stop};

impl State {
    /// Budgets are not looked at from now on: arenas are as large as can be, and blocks are placed as low as can be.
    pub(crate) fn lift_limits(&mut self) {
        self.accounts.limits = Limits::Lifted;
        self.demand.sides = Sides::Low;
        for device in self.accounts.devices() {
            self.set_capacity(device, i64::MAX as u64);
        }
    }

    /// Undoes [`lift_limits`](Self::lift_limits), once the plan laid out since was rolled back.
    pub(crate) fn restore_limits(&mut self) {
        self.accounts.limits = Limits::InForce;
        self.demand.sides = Sides::Partitioned;
        for device in self.accounts.devices() {
            let budget = self.accounts.get(device).budget;
            self.set_capacity(device, budget.unwrap_or(u64::MAX));
        }
    }

    /// Tries another budget on.
    pub(crate) fn set_limit(&mut self, device: u8, budget: u64) {
        self.accounts.of(device).budget = Some(budget);
        self.set_capacity(device, budget);
    }

    /// Evicts until so many more bytes fit, or refuses and leaves no trace. The journal stays open.
    pub(crate) fn free_bytes(&mut self, device: u8, bytes: u64) -> Result<(), Error> {
        self.journal.start();
        if self.graph.open_ops > 0 {
            self.demand.movable = Movable::Unlocked;
        }
        let result = self
            .make_room(device, bytes)
            .and_then(|()| self.request_constant(device, bytes));
        self.demand.movable = Movable::All;
        if result.is_err() {
            self.note_refused();
            let refusal = self.short_of(device, bytes);
            self.roll_back();
            return Err(refusal);
        }
        self.journal.mark();
        Ok(())
    }

    /// Evicts what a new budget does not hold, or refuses and leaves no trace. The journal stays open.
    pub(crate) fn move_budget(
        &mut self,
        device: u8,
        before: Option<u64>,
        now: Option<Bytes>,
    ) -> Result<(), Error> {
        if !self.arenas.has(device) {
            return self.free_bytes(device, 0);
        }
        self.journal.start();
        let end = now.map_or(u64::MAX, |now| now.0);
        if let Err(smallest) = self.clear_beyond(device, end) {
            self.roll_back();
            return Err(Error::Budget {
                device: DeviceId(device),
                budget: Bytes(before.unwrap_or(u64::MAX)),
                needed: Bytes(smallest),
                smallest: Bytes(smallest),
            });
        }
        self.journal.mark();
        self.move_end(device, end);
        Ok(())
    }

    /// Makes room after a first run that took more than announced.
    ///
    /// # Errors
    /// The device that is short, and the bytes known to be enough there.
    pub(crate) fn free_excess(&mut self) -> Result<(), Error> {
        if let Err(Stop::Short(device)) = self.place_unplaced() {
            return Err(self.short_of(device, 0));
        }
        for device in self.accounts.devices() {
            if self.make_room(device, 0).is_err() {
                return Err(self.short_of(device, 0));
            }
        }
        Ok(())
    }

    /// So many more bytes do not fit, and nothing is left to evict.
    pub(crate) fn short_of(&self, device: u8, bytes: u64) -> Error {
        let account = self.accounts.get(device);
        let left = account.memory.saturating_add(bytes);
        let budget = account.budget.unwrap_or(u64::MAX);
        let beyond = if self.arenas.has(device) {
            budget.saturating_add(bytes)
        } else {
            0
        };
        Error::Budget {
            device: DeviceId(device),
            budget: Bytes(budget),
            needed: Bytes(left),
            smallest: Bytes(left.max(beyond)),
        }
    }

    /// Evicts all that lies beyond a new end of a device's arena.
    ///
    /// # Errors
    /// Where the highest block ends, if not all can be evicted.
    fn clear_beyond(&mut self, device: u8, end: u64) -> Result<(), u64> {
        while let Some(s) = self.evictable_beyond(device, end) {
            self.evict(s);
        }
        let arena = self.arenas.get(device);
        let blocks = arena.into_iter().flat_map(|arena| arena.pool.blocks());
        let top = blocks.filter(|(.., taken)| *taken).last();
        match top.map_or(0, |(address, bytes, _)| address + bytes) {
            top if top > end => Err(top),
            _ => Ok(()),
        }
    }

    /// A candidate of which the block ends beyond an address.
    fn evictable_beyond(&self, device: u8, end: u64) -> Option<StorageId> {
        let arena = self.arenas.get(device)?;
        let candidates = self.eviction.candidates.of(device).iter();
        let mut storages = candidates.map(|candidate| candidate.storage);
        storages.find(|&s| {
            let address = self.graph[s].address;
            let bytes = arena.pool.size_of(address).unwrap_or(0);
            address != NOWHERE && address + bytes > end
        })
    }
}
