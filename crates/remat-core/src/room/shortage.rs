//! No free block is large enough: evicting until there is one, and what that did to the arena.

use crate::arena::blocks::{Arenas, NOWHERE};
use crate::arena::compaction::Found;
use crate::pool::{End, Fit};
use crate::transaction::state::{State, Stop};
use crate::{Price, StorageId};

/// Evicting no more than is missing must cost so many times less than a window: what a window frees beyond need serves the next
/// allocations. (2 and 4 were tried on the recorded traces; at 1 the GAN pays, without it the TreeLSTM thrashes.)
const MARGIN: u64 = 4;

impl State {
    /// Evicts, and takes the block: a window if the policy is one of windows, else one storage after the other until a block is large
    /// enough, as DTR and DTE did in the paper's comparison.
    pub(crate) fn meet_shortage(&mut self, pool: u8, bytes: u64, end: End) -> Result<u64, Stop> {
        self.journal.write_counters(self.counters);
        self.arenas.evicted.clear();
        let address = match self.arenas.windows_by {
            Some(price) if self.moves_blocks() => self.evict_or_move(pool, bytes, end, price)?,
            Some(price) if !self.ahead.on => {
                let window = self.find_window(pool, bytes, price);
                self.evict_window(pool, window.ok_or(Stop::Short(pool))?, bytes, end)?
            }
            _ => self.evict_until_free(pool, bytes, end)?,
        };
        self.count_shortage(pool, address);
        Ok(address)
    }

    /// The cheapest of three: moves alone, if enough bytes are free; a window; or evicting no more bytes than are missing, wherever they
    /// are, and moves then.
    fn evict_or_move(&mut self, pool: u8, bytes: u64, end: End, price: Price) -> Result<u64, Stop> {
        let window = match self.ahead.on {
            true => None,
            false => self.find_window(pool, bytes, price),
        };
        let cost = window.map_or(u64::MAX, |window| self.cost_of_window(pool, window));
        let most = self.bytes_moved_in(cost);
        match Arenas::time(self, |state| state.find_moves(pool, bytes, most)) {
            Found::Moves => return self.make_moves(pool, bytes, end),
            Found::Nothing if self.evict_until_moved(pool, bytes, cost / MARGIN) => {
                return self.take_or_move(pool, bytes, end);
            }
            Found::Dearer | Found::Nothing => {}
        }
        let window = window.ok_or(Stop::Short(pool))?;
        self.evict_window(pool, window, bytes, end)
    }

    /// Evicts one storage after the other, as DTR would, until a block is large enough or can be made so by the moves found. If that
    /// costs `most` nanoseconds or more, nothing is evicted.
    fn evict_until_moved(&mut self, pool: u8, bytes: u64, most: u64) -> bool {
        let (entries, steps, marks) = (
            self.journal.entries.len(),
            self.steps.len(),
            self.journal.marks.len(),
        );
        let (evicted, chosen) = (self.arenas.evicted.len(), self.arenas.chosen.len());
        let mut cost = 0u64;
        while cost < most {
            let Some(victim) = Arenas::time(self, |state| state.victim(pool)) else {
                break;
            };
            let own = self.cost_now(victim);
            cost = cost.saturating_add(own.max(0) as u64);
            self.counters.evictions += 1; // undone with the search
            if cost >= most {
                break;
            }
            self.evict_for_room(victim);
            let arena = self.arenas.get(pool);
            if arena.is_some_and(|arena| arena.pool.largest_free() >= bytes) {
                return true;
            }
            let moved = self.bytes_moved_in(most - cost - 1);
            match Arenas::time(self, |state| state.find_moves(pool, bytes, moved)) {
                Found::Moves => return true,
                Found::Dearer => break,
                Found::Nothing => {}
            }
        }
        self.undo_to(entries);
        self.steps.truncate(steps);
        self.journal.marks.truncate(marks);
        self.arenas.evicted.truncate(evicted);
        self.arenas.chosen.truncate(chosen);
        false
    }

    /// Takes a block, after the moves found last if there is none yet.
    fn take_or_move(&mut self, pool: u8, bytes: u64, end: End) -> Result<u64, Stop> {
        let arena = self.arenas.arena(pool).ok_or(Stop::Short(pool))?;
        match arena.pool.allocate(bytes, Fit::First, end) {
            Some(address) => {
                self.note_taken(pool, address);
                Ok(address)
            }
            None => self.make_moves(pool, bytes, end),
        }
    }

    fn evict_until_free(&mut self, pool: u8, bytes: u64, end: End) -> Result<u64, Stop> {
        loop {
            let victim = Arenas::time(self, |state| state.victim(pool));
            let victim = victim.ok_or(Stop::Short(pool))?;
            self.counters.evictions += 1;
            self.evict_for_room(victim);
            let arena = self.arenas.arena(pool).ok_or(Stop::Short(pool))?;
            if let Some(address) = arena.pool.allocate(bytes, Fit::First, end) {
                self.note_taken(pool, address);
                return Ok(address);
            }
        }
    }

    /// What the plan under way evicted and somebody may ask for, at the cost that it was chosen for.
    pub(crate) fn cost_of_evicted(&self) -> i64 {
        let asked_for = |s: &StorageId| self.graph.storages[s.index()].live_views > 0;
        let costs = self.arenas.chosen.iter().filter(|(s, _)| asked_for(s));
        costs.fold(0, |sum: i64, (_, cost)| sum.saturating_add(*cost))
    }

    /// Evicts, and remembers where.
    pub(crate) fn evict_for_room(&mut self, s: StorageId) {
        let cost = self.cost_now(s);
        self.arenas.chosen.push((s, cost));
        let storage = &self.graph.storages[s.index()];
        let (pool, address) = (storage.pool, storage.address);
        if address != NOWHERE {
            let arena = self.arenas.get(pool);
            let bytes = arena
                .and_then(|arena| arena.pool.size_of(address))
                .unwrap_or(0);
            self.arenas.evicted.push((address, bytes));
        }
        self.evict(s);
    }

    /// Counts what was evicted for the block just taken at an address, and what is free still.
    fn count_shortage(&mut self, pool: u8, address: u64) {
        let Some(arena) = self.arenas.get(pool) else {
            return;
        };
        let end = address + arena.pool.size_of(address).unwrap_or(0);
        let free = arena.pool.free_bytes();
        let counters = &mut self.counters;
        counters.shortages += 1;
        counters.shortage_bytes = counters.shortage_bytes.saturating_add(end - address);
        counters.free_after = counters.free_after.saturating_add(free);
        counters.most_free_after = counters.most_free_after.max(free);
        for &(from, bytes) in &self.arenas.evicted {
            let used = end.min(from + bytes).saturating_sub(address.max(from));
            counters.evicted_bytes = counters.evicted_bytes.saturating_add(bytes);
            counters.unused_evicted_bytes =
                counters.unused_evicted_bytes.saturating_add(bytes - used);
        }
    }

    /// The free bytes beside a storage count into its size where the policy has it so; those of the two neighbours of a block that
    /// was taken or freed have changed.
    pub(crate) fn weigh_gaps_beside(&mut self, pool: u8, address: u64) {
        if !self.arenas.weighs_gaps {
            return;
        }
        let Some(arena) = self.arenas.get(pool) else {
            return;
        };
        let around = arena.pool.taken_around(address);
        let owners = around.map(|slot| slot.and_then(|slot| arena.owner(slot)));
        for s in owners.into_iter().flatten() {
            self.weigh_gaps_of(s);
        }
    }

    /// Brings the size that a storage is scored by up to date.
    pub(crate) fn weigh_gaps_of(&mut self, s: StorageId) {
        if !self.arenas.weighs_gaps {
            return;
        }
        let bytes = self.bytes_with_gaps(s);
        self.set_scored_bytes(s, bytes);
    }

    /// A storage's bytes, and the free ones beside it where the policy counts them.
    pub(crate) fn bytes_with_gaps(&self, s: StorageId) -> u64 {
        let storage = &self.graph.storages[s.index()];
        if !self.arenas.weighs_gaps || storage.address == NOWHERE {
            return storage.bytes;
        }
        let arena = self.arenas.get(storage.pool);
        let (below, above) = arena
            .and_then(|arena| arena.pool.neighbours(storage.address))
            .unwrap_or((0, 0));
        storage.bytes.saturating_add(below).saturating_add(above)
    }
}
