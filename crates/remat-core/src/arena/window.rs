//! The sliding window (Coop section 3.3): of all runs of neighbouring blocks that make room once what they hold is evicted, the one that
//! costs least. One pass over the blocks in address order, two pointers; a free block costs nothing, one that cannot be evicted
//! breaks the window.
//!
//! A storage costs `projected cost / staleness`, which is DTR's score without the size: the window has the size. Costs are
//! summed in units of 2^-32, so that sums are exact whatever the order. The paper takes the window with the smallest sum; the sum over
//! the bytes made free is the better price where storages differ in size, since what is left over serves the next allocations
//! (docs/benchmarks.md).
//!
//! What a storage costs is dear to count: all that bringing it back would take. So windows are compared by bounds from a few ancestors
//! first, and whole costs are counted of the cheapest only, until it has no bounds. That changes no choice: no bound is above the whole cost.

use super::blocks::Arenas;
use crate::eviction::policy::Form;
use crate::graph::NONE;
use crate::pool::{End, NIL};
use crate::transaction::state::{State, Stop};
use crate::{Price, StorageId};

/// Small blocks are made room for together: a window is at least this part of the arena if there is one.
const GRAIN: u64 = 4096;

/// Scratch of searches.
#[derive(Default)]
pub(crate) struct Windows {
    /// The blocks since the last one that cannot be evicted: slot, bytes, cost.
    run: Vec<(u32, u64, u64)>,
    victims: Vec<StorageId>,
}

/// A run of blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    first: u32,
    last: u32,
}

impl State {
    /// The cheapest window; nothing is evicted.
    pub(crate) fn find_window(&mut self, pool: u8, bytes: u64, price: Price) -> Option<Window> {
        Arenas::time(self, |state| state.cheapest_window(pool, bytes, price))
    }

    /// Evicts a window, and takes a block at its chosen end.
    pub(crate) fn evict_window(
        &mut self,
        pool: u8,
        window: Window,
        bytes: u64,
        end: End,
    ) -> Result<u64, Stop> {
        self.list_victims(pool, window);
        let arena = self.arenas.get(pool).ok_or(Stop::Short(pool))?;
        let begins = arena.pool.block(window.first).address;
        let mut victims = std::mem::take(&mut self.arenas.windows.victims);
        self.counters.evictions += victims.len() as u64;
        for s in victims.drain(..) {
            self.evict_for_room(s);
        }
        self.arenas.windows.victims = victims;
        self.take_window(pool, begins, bytes, end)
    }

    /// What bringing a window back would cost, in nanoseconds.
    pub(crate) fn cost_of_window(&mut self, pool: u8, window: Window) -> u64 {
        self.list_victims(pool, window);
        let cost = |s: &StorageId| self.graph.storages[s.index()].numerator.max(0) as u64;
        let victims = self.arenas.windows.victims.iter();
        victims.map(cost).fold(0, u64::saturating_add)
    }

    fn list_victims(&mut self, pool: u8, window: Window) {
        let mut victims = std::mem::take(&mut self.arenas.windows.victims);
        victims.clear();
        let mut slot = window.first;
        while let Some(arena) = self.arenas.get(pool) {
            let block = arena.pool.block(slot);
            victims.extend(arena.owner(slot).filter(|_| block.taken));
            if slot == window.last {
                break;
            }
            slot = block.above;
        }
        self.arenas.windows.victims = victims;
    }

    /// The window is one free block now, with what was free beside it.
    fn take_window(&mut self, pool: u8, begins: u64, bytes: u64, end: End) -> Result<u64, Stop> {
        let arena = self.arenas.get(pool).ok_or(Stop::Short(pool))?;
        let (low, room) = arena.pool.free_around(begins).ok_or(Stop::Short(pool))?;
        let bytes = bytes.next_multiple_of(arena.pool.alignment());
        let address = match end {
            End::Low => low,
            End::High => low + (room - bytes),
        };
        self.take_block_at(pool, address, bytes);
        Ok(address)
    }

    fn cheapest_window(&mut self, pool: u8, bytes: u64, price: Price) -> Option<Window> {
        self.bound_numerators(pool);
        self.counters.searches += 1;
        let before = self.counters;
        loop {
            let window = self.slide_by_grain(pool, bytes, price)?;
            if !self.settle(pool, window) {
                return Some(window);
            }
            // Counted is one pass, whatever the search looked at.
            self.counters = before;
        }
    }

    /// Counts what evicting each block of a window costs where that was a lower bound so far; whether there was one. A window that costs least by
    /// bounds, and has none, is the one that costs least: all others cost as much as their bounds or more.
    fn settle(&mut self, pool: u8, window: Window) -> bool {
        let mut settled = false;
        let mut slot = window.first;
        while let Some(arena) = self.arenas.get(pool) {
            let block = arena.pool.block(slot);
            let owner = arena.owner(slot).filter(|_| block.taken);
            let above = block.above;
            settled |= owner.is_some_and(|s| self.settle_numerator(s).is_some());
            if slot == window.last {
                break;
            }
            slot = above;
        }
        settled
    }

    fn slide_by_grain(&mut self, pool: u8, bytes: u64, price: Price) -> Option<Window> {
        let grain = self.arenas.get(pool)?.pool.capacity() / GRAIN;
        let found = self.slide(pool, bytes.max(grain), price);
        match found {
            None if bytes < grain => self.slide(pool, bytes, price),
            found => found,
        }
    }

    /// One pass.
    fn slide(&mut self, pool: u8, bytes: u64, by: Price) -> Option<Window> {
        let mut run = std::mem::take(&mut self.arenas.windows.run);
        let arena = self.arenas.get(pool)?;
        let (mut best, mut least) = (None, f64::INFINITY);
        let (mut left, mut room, mut cost) = (0, 0u64, 0u128);
        run.clear();
        let mut visited = 0;
        let mut slot = arena.pool.lowest();
        while slot != NIL {
            visited += 1;
            let block = arena.pool.block(slot);
            let price = match block.taken {
                true => arena.owner(slot).and_then(|s| self.price(s)),
                false => Some(0),
            };
            let next = block.above;
            let Some(price) = price else {
                run.clear();
                (left, room, cost) = (0, 0, 0);
                slot = next;
                continue;
            };
            run.push((slot, block.bytes, price));
            room += block.bytes;
            cost += u128::from(price);
            while room - run[left].1 >= bytes {
                room -= run[left].1;
                cost -= u128::from(run[left].2);
                left += 1;
            }
            if room >= bytes {
                let divisor = match by {
                    Price::Sum => 1,
                    Price::PerByte => room,
                };
                let price = || cost as f64 / divisor as f64;
                if may_be_below(cost, divisor, least) {
                    if price() < least {
                        let first = run[left].0;
                        best = Some(Window { first, last: slot });
                        least = price();
                    }
                } else {
                    debug_assert!(price() >= least, "{cost} / {divisor} is below {least}");
                }
            }
            slot = next;
        }
        self.arenas.windows.run = run;
        self.counters.score_evaluations += visited;
        self.counters.metadata_accesses += visited;
        best
    }

    /// What evicting a storage costs, in units of 2^-32; `None` if it cannot be evicted. Its numerator is valid.
    #[inline]
    fn price(&self, s: StorageId) -> Option<u64> {
        let storage = &self.graph.storages[s.index()];
        if storage.slot == NONE {
            return None;
        }
        let staleness = match self.rule.form {
            Form::Quotient { stale: true, .. } => self.clock.saturating_sub(storage.last_access),
            _ => 1,
        };
        // Times are below 2^63.
        let cost = storage.numerator.max(0) as f64 / staleness as i64 as f64;
        Some((cost * (1u64 << 32) as f64) as u64)
    }
}

/// Whether a sum of costs over a divisor may be below a price: not, surely, for most windows, without a division and the conversion of 128 bits.
#[inline]
fn may_be_below(cost: u128, divisor: u64, least: f64) -> bool {
    /// More than the roundings below can be off by.
    const MARGIN: f64 = 1.0 + 1e-12;
    const HIGH: f64 = (1u128 << 64) as f64;
    // Sums of fewer than 2^32 costs of 64 bits, and divisors below 2^63.
    let (high, low) = ((cost >> 64) as i64, (cost as u64 >> 1) as i64);
    let about = high as f64 * HIGH + low as f64 * 2.0;
    about <= least * divisor as i64 as f64 * MARGIN
}
