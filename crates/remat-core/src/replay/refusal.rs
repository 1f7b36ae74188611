//! The numbers that a refusal names: the bytes that an order takes beyond the budgets, and those that the goal itself
//! takes.

use super::goal::Goal;
use crate::error::Error;
use crate::graph::Made;
use crate::ids::{Bytes, DeviceId};
use crate::transaction::{State, Stop};

/// How far beyond the budgets an order would go.
pub(super) struct Excess {
    /// Devices that are short.
    pub(super) devices: usize,
    /// Bytes over the budgets, all devices together.
    pub(super) bytes: u64,
    /// The first device that is short.
    pub(super) device: u8,
    /// The bytes that it would need.
    pub(super) peak: u64,
}

impl Excess {
    /// How far beyond the budgets the attempt just made went.
    pub(super) fn of(state: &State) -> Excess {
        let mut excess = Excess {
            devices: 0,
            bytes: 0,
            device: 0,
            peak: 0,
        };
        for (device, account) in state.accounts.all().iter().enumerate().rev() {
            let budget = account.budget.unwrap_or(u64::MAX);
            let over = account.high.saturating_sub(budget);
            if over > 0 {
                excess = Excess {
                    devices: excess.devices + 1,
                    bytes: excess.bytes.saturating_add(over),
                    device: device as u8,
                    peak: account.high,
                };
            }
        }
        excess
    }

    pub(super) fn is_less_than(&self, other: &Excess) -> bool {
        (self.devices, self.bytes) < (other.devices, other.bytes)
    }

    /// A refusal for want of bytes on the device that the leanest order found exceeds.
    pub(super) fn refusal(&self, state: &State, goal: &Goal) -> Error {
        let budget = state.accounts.get(self.device).budget.unwrap_or(u64::MAX);
        let needed = needed(state, goal, self.device);
        // An arena in which all would fit were it placed otherwise.
        let beside = budget.saturating_add(needed);
        let smallest = if self.devices == 0 { beside } else { self.peak };
        Error::Budget {
            device: DeviceId(self.device),
            budget: Bytes(budget),
            needed: Bytes(needed),
            smallest: Bytes(smallest),
        }
    }
}

/// Bytes of a device that must be there at once for the goal itself: all that is pinned, targets, outputs, workspace.
pub(super) fn needed(state: &State, goal: &Goal, device: u8) -> u64 {
    let graph = &state.graph;
    let targets = goal.targets.iter();
    let mut held: Vec<_> = targets.map(|&target| graph.storage_of(target)).collect();
    held.sort_unstable();
    held.dedup();
    let pinned = graph
        .storages
        .iter()
        .filter(|storage| storage.used && storage.pinned);
    let inputs = held
        .iter()
        .map(|&s| &graph[s])
        .filter(|storage| !storage.pinned);
    let there = pinned
        .chain(inputs)
        .filter(|storage| storage.device == device);
    let mut sum = there.fold(0u64, |sum, storage| sum.saturating_add(storage.bytes));
    if let Some(op) = goal.op.map(|op| &graph[op]) {
        for (output, made) in op.outputs.iter().zip(&op.made) {
            let storage = &graph[graph.storage_of(*output)];
            if *made == Made::Fresh && storage.device == device {
                sum = sum.saturating_add(storage.bytes);
            }
        }
        if op.workspace_device == device {
            sum = sum.saturating_add(op.workspace);
        }
    }
    sum
}

/// The answer to a stop that no other order helps against.
pub(super) fn error(stop: Stop) -> Error {
    match stop {
        Stop::Thrash { replayed, limit } => Error::Thrash { replayed, limit },
        Stop::Lost => Error::Protocol("a tensor whose value was overwritten for good is asked for"),
        Stop::Overflow => Error::Overflow,
        Stop::Short(_) | Stop::Work | Stop::Dear => Error::PlanLimit,
    }
}
