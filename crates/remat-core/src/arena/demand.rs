//! The blocks that the op under way needs, and what has been evicted for them.

use super::compaction::{Compaction, Movable};
use super::placement::Placement;
use super::window::Windows;
use crate::config::{Config, Memory};
use crate::eviction::policy::Price;
use crate::graph::NOWHERE;
use crate::ids::Bytes;
use crate::pool::Side;

/// A block that an op needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) device: u8,
    pub(crate) bytes: u64,
    pub(crate) side: Side,
    /// For which output; `None`: for the workspace.
    pub(crate) output: Option<u32>,
    /// Where a plan has it; it lies there if that is free.
    pub(crate) planned: Option<u64>,
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
            planned: None,
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
    /// Addresses that a plan has for the blocks of what is told now: for its outputs in order, then its workspace.
    pub(crate) planned: Vec<u64>,
    /// Where a block may lie too of which the place is taken: both addresses.
    pub(crate) twins: Vec<(u64, u64)>,
    /// The same as `planned`, for what is told next.
    pub(crate) planned_next: Vec<u64>,
    /// Blocks of the plan under way that lie where they were planned, and that do not.
    pub(crate) placed: u64,
    pub(crate) displaced: u64,
    /// Where the latest plan puts what its steps make, and the op that it is for.
    pub(crate) placements: Vec<Placement>,
    /// Storages evicted together are neighbours, and such windows are compared so.
    pub(crate) window: Option<Price>,
    pub(crate) sides: Sides,
    pub(crate) movable: Movable,
    /// Blocks evicted for the shortage under way: address, bytes.
    pub(crate) evicted: Vec<(u64, u64)>,
    /// For each storage evicted in the plan under way, the [cost](Self::cost) up to then.
    pub(crate) costs: Vec<i64>,
    /// A plan that costs as much is given up; `None`: whatever it costs.
    pub(crate) most: Option<i64>,
    pub(crate) windows: Windows,
    pub(crate) compaction: Compaction,
    pub(crate) stopwatch: Option<fn() -> u64>,
    /// Nanoseconds that searches took, by the stopwatch.
    pub(crate) search_time: u64,
    /// Nanoseconds that laying out plans took, searches included.
    pub(crate) planning_time: u64,
}

impl Demand {
    pub(crate) fn new(config: &Config, window: Option<Price>) -> Demand {
        Demand {
            requests: Vec::new(),
            planned: Vec::new(),
            twins: Vec::new(),
            planned_next: Vec::new(),
            placed: 0,
            displaced: 0,
            placements: Vec::new(),
            window: window.filter(|_| config.memory != Memory::Fungible),
            sides: Sides::Partitioned,
            movable: Movable::All,
            evicted: Vec::new(),
            costs: Vec::new(),
            most: None,
            windows: Windows::default(),
            compaction: Compaction::default(),
            stopwatch: config.stopwatch,
            search_time: 0,
            planning_time: 0,
        }
    }

    /// Gives the blocks requested the addresses that a plan has for them.
    pub(crate) fn plan_requests(&mut self) {
        if self.planned.is_empty() {
            return;
        }
        let workspace_last = |request: &&mut Request| request.output.unwrap_or(u32::MAX);
        let mut in_order: Vec<&mut Request> = self.requests.iter_mut().collect();
        in_order.sort_by_key(workspace_last);
        for (request, &address) in in_order.into_iter().zip(&self.planned) {
            request.planned = Some(address);
        }
    }

    /// The call begins that the addresses for the next one are for.
    pub(crate) fn turn_planned(&mut self) {
        self.planned.clear();
        std::mem::swap(&mut self.planned, &mut self.planned_next);
    }

    /// A guided op is laid out.
    pub(crate) fn begin_planned(&mut self, twins: &[(u64, u64)]) {
        (self.placed, self.displaced) = (0, 0);
        self.twins.clear();
        self.twins.extend_from_slice(twins);
    }

    /// The run that is laid out next has its blocks at these addresses.
    pub(crate) fn set_planned(&mut self, addresses: &[u64]) {
        self.planned.clear();
        self.planned.extend_from_slice(addresses);
    }

    /// Where else a block may lie of which the place is taken.
    pub(crate) fn twin(&self, address: u64) -> Option<u64> {
        let twin = self.twins.iter().find(|twin| twin.0 == address);
        twin.map(|twin| twin.1)
    }

    /// The steps laid out so far are not performed.
    pub(crate) fn forget_plan(&mut self) {
        self.placements.clear();
        self.costs.clear();
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

    /// The cost of the plan under way, amortized: with the cost of all that is missing for a potential, a replay is
    /// paid for by the storages that it brings back. The cost of those that the plan evicts remains, each as the policy
    /// counted it when it chose it; nothing for what nobody asks for again.
    pub(crate) fn cost(&self) -> i64 {
        self.costs.last().copied().unwrap_or(0)
    }

    /// The plan under way evicts a storage of this cost. (Components of `dtr-eq` may owe more than they hold; that is
    /// no gain.)
    pub(crate) fn pay(&mut self, cost: i64) {
        self.costs.push(self.cost().saturating_add(cost.max(0)));
    }

    /// Whether another plan costs no more than the one under way so far.
    pub(crate) fn is_dear(&self) -> bool {
        self.most.is_some_and(|most| self.cost() >= most)
    }
}
