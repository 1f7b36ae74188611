//! The end that a block is placed from. Cheap tensor partitioning (Coop section 3.4): what costs much for its size is placed from the low
//! end, as what cannot be evicted is, and what costs little from the high end, so that a window of cheap blocks is made of cheap
//! blocks only. Or by size, so that nothing small stands between large ones.

use crate::graph::Made;
use crate::pool::End;
use crate::transaction::state::State;
use crate::{Ends, Kind, OpId};

/// A block of this part of the arena is large.
const LARGE: u64 = 64;

/// Cost and bytes of all ops so far that made any: the mean density tells expensive ops from cheap ones, which differ by an order of
/// magnitude (table 1).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Densities {
    cost: u64,
    bytes: u64,
}

impl State {
    /// The end that a block of an op is placed from.
    pub(crate) fn end_of(&self, op: OpId, pool: u8, bytes: u64) -> End {
        let record = &self.graph.ops[op.index()];
        let high = match self.arenas.ends {
            _ if record.constant => false,
            Ends::Low => false,
            Ends::ByCost => self.is_cheap(op),
            Ends::BySize => {
                let arena = self.arenas.get(pool);
                arena.is_some_and(|arena| bytes >= arena.pool.capacity() / LARGE)
            }
        };
        match high {
            true => End::High,
            false => End::Low,
        }
    }

    fn is_cheap(&self, op: OpId) -> bool {
        let record = &self.graph.ops[op.index()];
        match record.kind {
            Kind::Cheap => true,
            Kind::Expensive => false,
            Kind::Unknown => self.is_below_mean(record.cost, self.bytes_made(op)),
        }
    }

    fn is_below_mean(&self, cost: u64, bytes: u64) -> bool {
        let all = &self.arenas.densities;
        u128::from(cost) * u128::from(all.bytes) < u128::from(all.cost) * u128::from(bytes)
    }

    fn bytes_made(&self, op: OpId) -> u64 {
        let record = &self.graph.ops[op.index()];
        let own = record
            .outputs
            .iter()
            .zip(&record.made)
            .filter(|(_, made)| **made != Made::Alias);
        own.fold(0, |sum: u64, (&output, _)| {
            let s = self.graph.storage_of(output);
            sum.saturating_add(self.graph.storages[s.index()].bytes)
        })
    }

    /// An op ran for the first time.
    pub(crate) fn note_density(&mut self, op: OpId) {
        if self.arenas.ends != Ends::ByCost {
            return;
        }
        let (cost, bytes) = (self.graph.ops[op.index()].cost, self.bytes_made(op));
        if bytes > 0 {
            let all = &mut self.arenas.densities;
            all.cost = all.cost.saturating_add(cost);
            all.bytes = all.bytes.saturating_add(bytes);
        }
    }
}
