//! Room by evicting a window of neighbours (Coop section 3.3).

use crate::arena::{Sought, Window};
use crate::eviction::policy::Price;
use crate::ids::StorageId;
use crate::pool::Side;
use crate::transaction::{State, Stop};

impl State {
    /// The cheapest window; nothing is evicted.
    pub(super) fn find_window(&mut self, device: u8, bytes: u64, price: Price) -> Option<Window> {
        self.timed(|state| state.cheapest_window(device, bytes, price))
    }

    /// Compares windows by bounds of costs, and counts the whole costs of the cheapest, until it has no bounds.
    fn cheapest_window(&mut self, device: u8, bytes: u64, price: Price) -> Option<Window> {
        let (graph, journal) = (&mut self.graph, &mut self.journal);
        self.eviction.bound_numerators(graph, journal, device);
        self.counters.searches += 1;
        let sought = Sought {
            bytes,
            price,
            clock: self.clock,
            form: self.eviction.candidates.form,
        };
        loop {
            let arena = self.arenas.get(device)?;
            let windows = &mut self.demand.windows;
            let window = windows.cheapest(arena, &self.graph, &sought);
            if window.is_some_and(|window| self.settle(device, window)) {
                continue;
            }
            // Counted is one pass, whatever the search looked at.
            let visited = self.demand.windows.visited;
            self.counters.score_evaluations += visited;
            self.counters.metadata_accesses += visited;
            return window;
        }
    }

    /// Counts the cost of evicting each block of a window where that was a lower bound so far; whether there was one.
    /// The window that costs least by bounds, and has none, is the one that costs least: all others cost as much as
    /// their bounds or more.
    fn settle(&mut self, device: u8, window: Window) -> bool {
        let storages = self.list_storages(device, window);
        let mut settled = false;
        for &s in &storages {
            let (graph, journal) = (&mut self.graph, &mut self.journal);
            let counted = self.eviction.settle_numerator(graph, journal, s);
            settled |= counted.is_some();
        }
        self.demand.windows.storages = storages;
        settled
    }

    /// Evicts a window, and takes a block at its chosen end.
    pub(super) fn evict_window(
        &mut self,
        device: u8,
        window: Window,
        bytes: u64,
        side: Side,
    ) -> Result<u64, Stop> {
        let mut victims = self.list_storages(device, window);
        let arena = self.arenas.get(device).ok_or(Stop::Short(device))?;
        let begins = arena.pool.block(window.first).address;
        self.counters.evictions += victims.len() as u64;
        for s in victims.drain(..) {
            self.evict_for_room(s);
        }
        self.demand.windows.storages = victims;
        self.take_window(device, begins, bytes, side)
    }

    /// The cost of bringing a window back, in nanoseconds.
    pub(super) fn cost_of_window(&mut self, device: u8, window: Window) -> u64 {
        let storages = self.list_storages(device, window);
        let cost = |&s: &StorageId| self.graph[s].numerator.max(0) as u64;
        let sum = storages.iter().map(cost).fold(0, u64::saturating_add);
        self.demand.windows.storages = storages;
        sum
    }

    /// The storages of a window, in a buffer that is to be given back.
    fn list_storages(&mut self, device: u8, window: Window) -> Vec<StorageId> {
        let mut storages = std::mem::take(&mut self.demand.windows.storages);
        storages.clear();
        if let Some(arena) = self.arenas.get(device) {
            window.list_storages(arena, &mut storages);
        }
        storages
    }

    /// The window is one free block now, with the free bytes beside it.
    fn take_window(
        &mut self,
        device: u8,
        begins: u64,
        bytes: u64,
        side: Side,
    ) -> Result<u64, Stop> {
        let arena = self.arenas.get(device).ok_or(Stop::Short(device))?;
        let (low, room) = arena.pool.free_around(begins).ok_or(Stop::Short(device))?;
        let bytes = bytes.next_multiple_of(arena.pool.alignment());
        let address = match side {
            Side::Low => low,
            Side::High => low + (room - bytes),
        };
        self.take_block_at(device, address, bytes)
            .ok_or(Stop::Short(device))
    }
}
