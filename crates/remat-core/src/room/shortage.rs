//! No free block is large enough: evicting until there is one, and the account of what that did to the arena.

use crate::arena::Found;
use crate::eviction::policy::Price;
use crate::graph::NOWHERE;
use crate::ids::StorageId;
use crate::op::Step;
use crate::pool::Side;
use crate::transaction::{State, Stop};

/// Evicting no more than is missing must cost so many times less than a window: the bytes that a window frees beyond
/// need serve the next allocations. (2 and 4 were tried on the recorded traces; at 1 the GAN pays, without it the
/// TreeLSTM thrashes.)
const MARGIN: u64 = 4;

/// Where a search for room began; it may come to nothing.
struct Mark {
    entries: usize,
    steps: usize,
    marks: usize,
    evicted: usize,
    costs: usize,
}

impl State {
    /// Evicts, and takes the block: a window if the policy is one of windows, else one storage after the other until a
    /// block is large enough, as DTR and DTE did in the paper's comparison.
    pub(super) fn meet_shortage(
        &mut self,
        device: u8,
        bytes: u64,
        side: Side,
    ) -> Result<u64, Stop> {
        self.journal.write_counters(self.counters);
        self.demand.evicted.clear();
        let address = match self.demand.window {
            Some(price) if self.arenas.moves_blocks() => {
                self.evict_or_move(device, bytes, side, price)?
            }
            Some(price) if !self.eviction.next_uses.are_known() => {
                let window = self.find_window(device, bytes, price);
                self.evict_window(device, window.ok_or(Stop::Short(device))?, bytes, side)?
            }
            _ => self.evict_until_free(device, bytes, side)?,
        };
        self.count_shortage(device, address);
        Ok(address)
    }

    /// The cheapest of three: moves alone, if enough bytes are free; a window; or evicting no more bytes than are
    /// missing, wherever they are, and moves then.
    fn evict_or_move(
        &mut self,
        device: u8,
        bytes: u64,
        side: Side,
        price: Price,
    ) -> Result<u64, Stop> {
        let window = if self.eviction.next_uses.are_known() {
            None
        } else {
            self.find_window(device, bytes, price)
        };
        let cost = window.map_or(u64::MAX, |window| self.cost_of_window(device, window));
        let most = self.arenas.bytes_moved_in(cost);
        match self.find_moves(device, bytes, most) {
            Found::Moves => return self.make_moves(device, bytes, side),
            Found::Nothing if self.evict_until_moved(device, bytes, cost / MARGIN) => {
                return match self.take_block(device, bytes, side) {
                    Some(address) => Ok(address),
                    None => self.make_moves(device, bytes, side),
                };
            }
            Found::Dearer | Found::Nothing => {}
        }
        let window = window.ok_or(Stop::Short(device))?;
        self.evict_window(device, window, bytes, side)
    }

    /// Evicts one storage after the other, as DTR would, until a block is large enough or can be made so by the moves
    /// found. If that costs `most` nanoseconds or more, nothing is evicted.
    fn evict_until_moved(&mut self, device: u8, bytes: u64, most: u64) -> bool {
        let mark = self.mark();
        let mut cost = 0u64;
        while cost < most {
            let Some(victim) = self.timed(|state| state.victim(device)) else {
                break;
            };
            cost = cost.saturating_add(self.cost_now(victim).max(0) as u64);
            self.counters.evictions += 1; // undone with the search
            if cost >= most {
                break;
            }
            self.evict_for_room(victim);
            let arena = self.arenas.get(device);
            if arena.is_some_and(|arena| arena.pool.largest_free() >= bytes) {
                return true;
            }
            let moved = self.arenas.bytes_moved_in(most - cost - 1);
            match self.find_moves(device, bytes, moved) {
                Found::Moves => return true,
                Found::Dearer => break,
                Found::Nothing => {}
            }
        }
        self.return_to(&mark);
        false
    }

    fn mark(&self) -> Mark {
        Mark {
            entries: self.journal.entries.len(),
            steps: self.steps.len(),
            marks: self.journal.marks.len(),
            evicted: self.demand.evicted.len(),
            costs: self.demand.costs.len(),
        }
    }

    fn return_to(&mut self, mark: &Mark) {
        self.undo_to(mark.entries);
        self.steps.truncate(mark.steps);
        self.journal.marks.truncate(mark.marks);
        self.demand.evicted.truncate(mark.evicted);
        self.demand.costs.truncate(mark.costs);
    }

    fn evict_until_free(&mut self, device: u8, bytes: u64, side: Side) -> Result<u64, Stop> {
        loop {
            let victim = self.timed(|state| state.victim(device));
            let victim = victim.ok_or(Stop::Short(device))?;
            self.counters.evictions += 1;
            self.evict_for_room(victim);
            if let Some(address) = self.take_block(device, bytes, side) {
                return Ok(address);
            }
        }
    }

    /// Evicts, and remembers where and at which cost.
    pub(super) fn evict_for_room(&mut self, s: StorageId) {
        self.pay_for(s);
        let storage = &self.graph[s];
        let address = storage.address;
        if address != NOWHERE {
            let arena = self.arenas.get(storage.device);
            let bytes = arena.and_then(|arena| arena.pool.size_of(address));
            self.demand.evicted.push((address, bytes.unwrap_or(0)));
        }
        self.evict(s);
    }

    /// Adds what a victim costs to the plan under way.
    pub(super) fn pay_for(&mut self, s: StorageId) {
        if self.graph[s].live_views > 0 {
            let cost = self.cost_now(s);
            self.demand.pay(cost);
        }
    }

    fn cost_now(&mut self, s: StorageId) -> i64 {
        let (graph, journal) = (&mut self.graph, &mut self.journal);
        self.eviction.cost_now(graph, journal, s)
    }

    /// Finds moves of at most so many bytes (`most`) that make room.
    fn find_moves(&mut self, device: u8, bytes: u64, most: u64) -> Found {
        self.timed(|state| {
            let Some(arena) = state.arenas.get(device) else {
                return Found::Nothing;
            };
            let (graph, demand) = (&state.graph, &mut state.demand);
            demand
                .compaction
                .find(arena, graph, demand.movable, bytes, most)
        })
    }

    /// Performs the moves found last, and takes a block of so many bytes where they made room.
    fn make_moves(&mut self, device: u8, bytes: u64, side: Side) -> Result<u64, Stop> {
        let moves = std::mem::take(&mut self.demand.compaction.moves);
        for &(storage, bytes, address) in &moves {
            self.push_step(Step::Move { storage, address });
            let from = self.graph[storage].address;
            self.take_block_at(device, address, bytes);
            self.set_address(storage, address);
            self.free_block(device, from);
            self.counters.moved_bytes = self.counters.moved_bytes.saturating_add(bytes);
        }
        self.demand.compaction.moves = moves;
        self.take_block(device, bytes, side)
            .ok_or(Stop::Short(device))
    }

    /// Counts the bytes evicted for the block just taken at an address, and those that are still free.
    fn count_shortage(&mut self, device: u8, address: u64) {
        let Some(arena) = self.arenas.get(device) else {
            return;
        };
        let end = address + arena.pool.size_of(address).unwrap_or(0);
        let free = arena.pool.free_bytes();
        let counters = &mut self.counters;
        counters.shortages += 1;
        counters.shortage_bytes = counters.shortage_bytes.saturating_add(end - address);
        counters.free_after = counters.free_after.saturating_add(free);
        counters.most_free_after = counters.most_free_after.max(free);
        for &(from, bytes) in &self.demand.evicted {
            let used = end.min(from + bytes).saturating_sub(address.max(from));
            counters.evicted_bytes = counters.evicted_bytes.saturating_add(bytes);
            counters.unused_evicted_bytes =
                counters.unused_evicted_bytes.saturating_add(bytes - used);
        }
    }

    /// Runs a search, and counts its time.
    pub(super) fn timed<T>(&mut self, search: impl FnOnce(&mut State) -> T) -> T {
        let Some(now) = self.demand.stopwatch else {
            return search(self);
        };
        let started = now();
        let found = search(self);
        self.demand.search_time += now().saturating_sub(started);
        found
    }
}
