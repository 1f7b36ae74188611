//! The blocks that the op under way needs, and what has been evicted for them.

use super::compaction::{Compaction, Movable};
use super::placement::Placement;
use super::window::Windows;
use crate::config::{Config, Memory};
use crate::eviction::policy::Price;
use crate::graph::{Graph, NOWHERE};
use crate::ids::{Bytes, StorageId};
use crate::pool::Side;

/// A block that an op needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) device: u8,
    pub(crate) bytes: u64,
    pub(crate) side: Side,
    /// For which output; `None`: for the workspace.
    pub(crate) output: Option<u32>,
    /// Where it was found, [`NOWHERE`] until then.
    pub(crate) address: u64,
}

impl Request {
    pub(crate) fn new(device: u8, bytes: u64, side: Side, output: Option<u32>) -> Request {
        Request {
            device,
            bytes,
            side,
            output,
            address: NOWHERE,
        }
    }
}

/// The sides that blocks are placed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sides {
    /// Each from the side that the [partition](super::partition) says.
    Partitioned,
    /// All from the low end, as where a plan was measured.
    Low,
}

/// Needs of the op under way, and what is done to meet them.
pub(crate) struct Demand {
    /// The blocks that the op needs.
    pub(crate) requests: Vec<Request>,
    /// Where the latest plan puts what its steps make, and the op that it is for.
    pub(crate) placements: Vec<Placement>,
    /// Storages evicted together are neighbours, and such windows are compared so.
    pub(crate) window: Option<Price>,
    pub(crate) sides: Sides,
    pub(crate) movable: Movable,
    /// Blocks evicted for the shortage under way: address, bytes.
    pub(crate) evicted: Vec<(u64, u64)>,
    /// Storages evicted in the plan under way, each at the cost that it was chosen for. (One that came back since may
    /// have a bound only.)
    pub(crate) chosen: Vec<(StorageId, i64)>,
    pub(crate) windows: Windows,
    pub(crate) compaction: Compaction,
    pub(crate) stopwatch: Option<fn() -> u64>,
    /// Nanoseconds that searches took, by the stopwatch.
    pub(crate) search_time: u64,
}

impl Demand {
    pub(crate) fn new(config: &Config, window: Option<Price>) -> Demand {
        Demand {
            requests: Vec::new(),
            placements: Vec::new(),
            window: window.filter(|_| config.memory != Memory::Fungible),
            sides: Sides::Partitioned,
            movable: Movable::All,
            evicted: Vec::new(),
            chosen: Vec::new(),
            windows: Windows::default(),
            compaction: Compaction::default(),
            stopwatch: config.stopwatch,
            search_time: 0,
        }
    }

    /// The steps laid out so far are not performed.
    pub(crate) fn forget_plan(&mut self) {
        self.placements.clear();
        self.chosen.clear();
    }

    /// Remembers where the op whose blocks were just found puts its outputs.
    pub(crate) fn note_placements(&mut self, step: usize) {
        for request in &self.requests {
            if let Some(output) = request.output {
                self.placements.push(Placement {
                    step,
                    output,
                    address: request.address,
                    bytes: Bytes(request.bytes),
                });
            }
        }
    }

    /// The cost of all that the plan under way evicted and somebody may ask for, each at the cost that it was chosen
    /// for.
    pub(crate) fn cost_of_evicted(&self, graph: &Graph) -> i64 {
        let asked_for = |s: StorageId| graph[s].live_views > 0;
        let costs = self.chosen.iter().filter(|(s, _)| asked_for(*s));
        costs.fold(0, |sum: i64, (_, cost)| sum.saturating_add(*cost))
    }
}
