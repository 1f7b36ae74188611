//! Cheap tensor partitioning (Coop section 3.4): what costs much for its size is placed from the low end, as what cannot be
//! evicted is, and what costs little from the high end. So a window of cheap blocks is made of cheap blocks only.

use crate::graph::Made;
use crate::pool::End;
use crate::state::State;
use crate::{Ends, Kind, OpId};

/// Cost and bytes of all ops so far that made any: the mean density tells expensive ops from cheap ones, which differ by an order of
/// magnitude (table 1).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Densities {
    cost: u64,
    bytes: u64,
}

impl State {
    /// The end that an op's outputs are placed from.
    pub(super) fn end_of(&self, op: OpId) -> End {
        let record = &self.graph.ops[op.index()];
        let cheap = match record.kind {
            _ if self.arenas.ends == Ends::Low || record.constant => false,
            Kind::Cheap => true,
            Kind::Expensive => false,
            Kind::Unknown => self.is_below_mean(record.cost, self.bytes_made(op)),
        };
        match cheap {
            true => End::High,
            false => End::Low,
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
        if self.arenas.ends == Ends::Low {
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
