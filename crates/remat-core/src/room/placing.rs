//! Blocks for the outputs and the workspace of an op, and for constants.

use crate::arena::{Request, Sides};
use crate::graph::{Made, NOWHERE};
use crate::ids::OpId;
use crate::op::Mutation;
use crate::pool::Side;
use crate::transaction::{State, Stop};

impl State {
    /// Lists the blocks that an op needs, the largest first: the rest of their windows takes the small ones. Outputs
    /// that are there already are made once more and dropped.
    pub(crate) fn request_blocks(&mut self, op: OpId, mutation: Mutation) {
        self.demand.requests.clear();
        if !self.arenas.any() {
            return;
        }
        for index in 0..self.graph[op].outputs.len() {
            let takes = match self.graph[op].made[index] {
                Made::Fresh => true,
                Made::Alias => false,
                Made::InPlace(_) => mutation == Mutation::Copy,
            };
            if takes {
                let storage = &self.graph[self.graph.output(op, index)];
                let (device, bytes) = (storage.device, storage.bytes);
                self.request(op, device, bytes, Some(index as u32));
            }
        }
        let record = &self.graph[op];
        self.request(op, record.workspace_device, record.workspace, None);
        self.demand
            .requests
            .sort_by_key(|request| std::cmp::Reverse(request.bytes));
    }

    /// Requests a block from the side where those of the op are.
    fn request(&mut self, op: OpId, device: u8, bytes: u64, output: Option<u32>) {
        if let Some(arena) = self.arenas.get(device) {
            let partition = &self.arenas.partition;
            let side = partition.side_of(&self.graph, op, arena.pool.capacity(), bytes);
            self.request_from(device, bytes, side, output);
        }
    }

    fn request_from(&mut self, device: u8, bytes: u64, side: Side, output: Option<u32>) {
        if bytes > 0 && bytes >= self.arenas.smallest && self.arenas.has(device) {
            let request = Request::new(device, bytes, side, output);
            self.demand.requests.push(request);
        }
    }

    /// Takes a block for each request, evicting where there is none.
    pub(super) fn place_requests(&mut self) -> Result<(), Stop> {
        for index in 0..self.demand.requests.len() {
            let request = self.demand.requests[index];
            self.demand.requests[index].address = self.find_requested(request)?;
        }
        Ok(())
    }

    /// A block for a constant of so many bytes, from the end where those are.
    pub(super) fn request_constant(&mut self, device: u8, bytes: u64) -> Result<(), Stop> {
        self.demand.requests.clear();
        self.request_from(device, bytes, Side::Low, None);
        self.demand.plan_requests();
        self.place_requests()
    }

    /// Finds blocks for outputs that turned out larger than announced.
    pub(super) fn place_unplaced(&mut self) -> Result<(), Stop> {
        while let Some(&s) = self.arenas.unplaced.last() {
            let storage = &self.graph[s];
            let (device, bytes) = (storage.device, storage.bytes);
            if storage.resident && storage.used && storage.address == NOWHERE {
                self.lock(s);
                let found = self.find_requested(Request::new(device, bytes, Side::Low, None));
                self.unlock(s);
                self.set_address(s, found?);
            }
            self.arenas.unplaced.pop();
        }
        Ok(())
    }

    /// Takes the block that a plan has for a request, if it is free; else any, evicting if there is none.
    fn find_requested(&mut self, request: Request) -> Result<u64, Stop> {
        let Request {
            device,
            bytes,
            side,
            planned,
            ..
        } = request;
        let side = match self.demand.sides {
            Sides::Partitioned => side,
            Sides::Low => Side::Low,
        };
        let lifted = self.accounts.are_lifted();
        let at = planned.and_then(|address| self.take_planned(device, address, bytes));
        self.demand.placed += u64::from(at.is_some());
        self.demand.displaced += u64::from(planned.is_some() && at.is_none());
        let address = match at.or_else(|| self.take_block(device, bytes, side)) {
            Some(address) => address,
            None if lifted || !self.arenas.has(device) => return Err(Stop::Short(device)),
            None => self.meet_shortage(device, bytes, side)?,
        };
        if lifted {
            let arena = self.arenas.get(device);
            let size = arena.and_then(|arena| arena.pool.size_of(address));
            let account = self.accounts.of(device);
            account.high = account.high.max(address + size.unwrap_or(0));
        }
        Ok(address)
    }

    /// Takes the block that a plan has for a request, or the twin of it.
    fn take_planned(&mut self, device: u8, address: u64, bytes: u64) -> Option<u64> {
        let at = self.take_block_at(device, address, bytes);
        at.or_else(|| {
            let twin = self.demand.twin(address)?;
            self.take_block_at(device, twin, bytes)
        })
    }
}
