//! Room among bytes that are only counted.

use crate::ids::OpId;
use crate::op::Mutation;
use crate::transaction::{State, Stop};

impl State {
    /// Evicts candidates until so many more bytes fit (DTR figure 1; rule 3 of the reference). In an arena blocks are
    /// found one by one, for each request.
    pub(crate) fn make_room(&mut self, device: u8, bytes: u64) -> Result<(), Stop> {
        while !self.arenas.has(device) && self.accounts.exceeds(device, bytes) {
            let victim = self.victim(device).ok_or(Stop::Short(device))?;
            self.counters.evictions += 1;
            // Where the uses to come choose, no plan is weighed.
            if !self.eviction.next_uses.are_known() {
                self.pay_for(victim);
            }
            self.evict(victim);
        }
        Ok(())
    }

    /// Makes room for the bytes sought and the blocks requested.
    pub(crate) fn make_all_room(&mut self) -> Result<(), Stop> {
        for device in self.accounts.devices() {
            self.make_room(device, self.accounts.get(device).need)?;
        }
        self.place_requests()?;
        if self.demand.is_dear() {
            return Err(Stop::Dear);
        }
        Ok(())
    }

    /// Makes room for an op that is to run for the first time, if there is one.
    pub(crate) fn make_room_for_op(&mut self, op: Option<OpId>) -> Result<(), Stop> {
        let Some(op) = op else {
            self.demand.requests.clear();
            return Ok(());
        };
        self.seek_bytes(op, Mutation::Consume);
        self.request_blocks(op, Mutation::Consume);
        self.demand.plan_requests();
        self.make_all_room()?;
        self.accounts.note_sought();
        Ok(())
    }
}
