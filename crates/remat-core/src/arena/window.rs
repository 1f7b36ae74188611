//! The sliding window (Coop section 3.3): of all runs of neighbouring blocks that make room once they are evicted, the
//! one that costs least. One pass over the blocks in address order, two pointers; a free block costs nothing, a block
//! that cannot be evicted breaks the window.
//!
//! A storage costs `projected cost / staleness`, which is DTR's score without the size: the window has the size. Costs
//! are summed in units of 2^-32, so that sums are exact whatever the order. The paper takes the window with the
//! smallest sum; the sum over the bytes made free is the better price where storages differ in size, since the bytes
//! left over serve the next allocations (docs/reference/benchmarks/simulated-arenas.md).
//!
//! A storage's whole cost is dear to count: all that bringing it back would take. So windows are compared by bounds
//! from a few ancestors first, and whole costs are counted of the cheapest only, until it has no bounds. That changes
//! no choice: no bound is above the whole cost.

use super::blocks::Arena;
use crate::eviction::policy::{Form, Price};
use crate::graph::{Graph, NONE, Storage};
use crate::ids::StorageId;
use crate::pool::NIL;

/// Small blocks are made room for together: a window is at least this part of the arena if there is one.
const GRAIN: u64 = 4096;

/// Scratch of searches.
#[derive(Default)]
pub(crate) struct Windows {
    /// The blocks since the last one that cannot be evicted: slot, bytes, cost.
    run: Vec<(u32, u64, u64)>,
    /// The storages of a window.
    pub(crate) storages: Vec<StorageId>,
    /// Blocks visited by the latest search.
    pub(crate) visited: u64,
}

/// A run of blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) first: u32,
    last: u32,
}

/// The aim of a search, and the time of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sought {
    pub(crate) bytes: u64,
    pub(crate) price: Price,
    pub(crate) clock: u64,
    pub(crate) form: Form,
}

impl Window {
    /// Appends the storages whose blocks it holds.
    pub(crate) fn list_storages(&self, arena: &Arena, into: &mut Vec<StorageId>) {
        let mut slot = self.first;
        loop {
            let block = arena.pool.block(slot);
            into.extend(arena.owner(slot).filter(|_| block.taken));
            if slot == self.last {
                break;
            }
            slot = block.above;
        }
    }
}

/// The window under the right pointer: what it holds, and what it costs.
#[derive(Default)]
struct Sum {
    /// Where it begins in the run.
    left: usize,
    room: u64,
    cost: u128,
}

impl Windows {
    /// The cheapest window by the costs that are known, with a margin for the next small blocks if there is one so
    /// large.
    pub(crate) fn cheapest(
        &mut self,
        arena: &Arena,
        graph: &Graph,
        sought: &Sought,
    ) -> Option<Window> {
        self.visited = 0;
        let grain = arena.pool.capacity() / GRAIN;
        let bytes = sought.bytes.max(grain);
        let found = self.slide(arena, graph, &Sought { bytes, ..*sought });
        match found {
            None if sought.bytes < grain => self.slide(arena, graph, sought),
            found => found,
        }
    }

    /// One pass.
    fn slide(&mut self, arena: &Arena, graph: &Graph, sought: &Sought) -> Option<Window> {
        let run = &mut self.run;
        let (mut best, mut least) = (None, f64::INFINITY);
        let mut sum = Sum::default();
        run.clear();
        let mut visited = 0;
        let mut slot = arena.pool.lowest();
        while slot != NIL {
            visited += 1;
            let block = arena.pool.block(slot);
            let last = slot;
            slot = block.above;
            let price = if block.taken {
                let owner = arena.owner(last);
                owner.and_then(|s| price(&graph[s], sought))
            } else {
                Some(0)
            };
            let Some(price) = price else {
                run.clear();
                sum = Sum::default();
                continue;
            };
            run.push((last, block.bytes, price));
            sum.room += block.bytes;
            sum.cost += u128::from(price);
            while sum.room - run[sum.left].1 >= sought.bytes {
                sum.room -= run[sum.left].1;
                sum.cost -= u128::from(run[sum.left].2);
                sum.left += 1;
            }
            if sum.room >= sought.bytes {
                if let Some(price) = sum.price_below(sought.price, least) {
                    let first = run[sum.left].0;
                    best = Some(Window { first, last });
                    least = price;
                }
            }
        }
        self.visited += visited;
        best
    }
}

impl Sum {
    /// The price of the window, if it is below another.
    #[inline]
    fn price_below(&self, by: Price, least: f64) -> Option<f64> {
        let divisor = match by {
            Price::Sum => 1,
            Price::PerByte => self.room,
        };
        let price = || self.cost as f64 / divisor as f64;
        if may_be_below(self.cost, divisor, least) {
            return Some(price()).filter(|&price| price < least);
        }
        debug_assert!(
            price() >= least,
            "{} / {divisor} is below {least}",
            self.cost
        );
        None
    }
}

/// The price of evicting a storage, in units of 2^-32; `None` if it cannot be evicted. Its numerator is valid.
#[inline]
fn price(storage: &Storage, sought: &Sought) -> Option<u64> {
    if storage.slot == NONE {
        return None;
    }
    let staleness = match sought.form {
        Form::Quotient { stale: true, .. } => sought.clock.saturating_sub(storage.last_access),
        _ => 1,
    };
    // Times are below 2^63.
    let cost = storage.numerator.max(0) as f64 / staleness as i64 as f64;
    Some((cost * (1u64 << 32) as f64) as u64)
}

/// Whether a sum of costs over a divisor may be below a price: a test that most windows fail, without a division and
/// without converting 128 bits.
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
