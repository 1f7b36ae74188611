//! The side that a block is placed from. Cheap tensor partitioning (Coop section 3.4): blocks that cost much for their
//! size are placed from the low end, as those are that cannot be evicted, and blocks that cost little from the high
//! end, so that a window of cheap blocks holds cheap blocks only. Or by size, so that no small block stands between
//! large ones.

use crate::config::Partition;
use crate::graph::{Graph, Made};
use crate::ids::OpId;
use crate::op::Kind;
use crate::pool::Side;

/// A block of this part of the arena is large.
const LARGE: u64 = 64;

/// The rule by which blocks are kept apart. Cost and bytes are those of all ops so far that made any: the mean density
/// tells expensive ops from cheap ones, which differ by an order of magnitude (table 1).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Partitioning {
    partition: Partition,
    cost: u64,
    bytes: u64,
}

impl Partitioning {
    pub(crate) fn new(partition: Partition) -> Partitioning {
        Partitioning {
            partition,
            cost: 0,
            bytes: 0,
        }
    }

    /// The side that a block of an op is placed from, in an arena of this capacity.
    pub(crate) fn side_of(&self, graph: &Graph, op: OpId, capacity: u64, bytes: u64) -> Side {
        let high = match self.partition {
            _ if graph[op].constant => false,
            Partition::None => false,
            Partition::ByCost => self.is_cheap(graph, op),
            Partition::BySize => bytes >= capacity / LARGE,
        };
        if high { Side::High } else { Side::Low }
    }

    fn is_cheap(&self, graph: &Graph, op: OpId) -> bool {
        match graph[op].kind {
            Kind::Cheap => true,
            Kind::Expensive => false,
            Kind::Unknown => {
                let made = u128::from(bytes_made(graph, op));
                u128::from(graph[op].cost) * u128::from(self.bytes) < u128::from(self.cost) * made
            }
        }
    }

    /// An op ran for the first time.
    pub(crate) fn note_density(&mut self, graph: &Graph, op: OpId) {
        if self.partition != Partition::ByCost {
            return;
        }
        let (cost, bytes) = (graph[op].cost, bytes_made(graph, op));
        if bytes > 0 {
            self.cost = self.cost.saturating_add(cost);
            self.bytes = self.bytes.saturating_add(bytes);
        }
    }
}

fn bytes_made(graph: &Graph, op: OpId) -> u64 {
    let outputs = graph[op].outputs.iter().zip(&graph[op].made);
    let own = outputs.filter(|(_, made)| **made != Made::Alias);
    own.fold(0, |sum: u64, (&output, _)| {
        sum.saturating_add(graph[graph.storage_of(output)].bytes)
    })
}
