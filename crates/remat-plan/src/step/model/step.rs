//! A recorded step in flat arrays.

use crate::adjacency::Adjacency;

/// No op, no storage.
pub(crate) const NONE: u32 = u32::MAX;

/// A recorded step: ops in program order, the storages that they read and write, and what must be there at its end.
///
/// A storage here is one value of some memory: an op that writes in place makes a new one in the block of the old one,
/// which is gone then, as in the engine (Coop section 3.5). Constants are ops without cost that cannot run again.
#[derive(Clone, Debug, Default)]
pub struct Step {
    pub(crate) ops: Vec<Op>,
    pub(crate) storages: Vec<Storage>,
    /// Storages that each op reads, each once. Constants that stay are left out.
    pub(crate) reads: Adjacency,
    /// Storages that each op makes.
    pub(crate) makes: Adjacency,
    /// Ops that read each storage, in program order.
    pub(crate) readers: Adjacency,
    /// Ops that write into each storage in place, in program order: its value is gone after their first run.
    pub(crate) kills: Adjacency,
    /// Views that each op reads, by the ops that made them, and views of those.
    pub(crate) views: Adjacency,
    /// Bytes of constants that stay, at each op and after the last one.
    pub(crate) constants: Vec<u64>,
    /// Cost of all ops, in nanoseconds.
    pub(crate) cost: u64,
    /// The op that each event of the recording became, or the next one; remarks do not count.
    pub(crate) at_event: Vec<u32>,
    /// Ops by their numbers in plans.
    pub(crate) numbered: Vec<u32>,
}

/// An op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Op {
    /// Its number in plans: constants and ops of the recording from 0. `NONE` where the recording only reads.
    pub(crate) number: u32,
    /// Nanoseconds.
    pub(crate) cost: u64,
    /// Bytes while it runs, beside what it reads and makes.
    pub(crate) workspace: u64,
    pub(crate) kind: OpKind,
    /// The last slot in which it can run again.
    pub(crate) until: u32,
}

/// How an op takes part in recomputing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum OpKind {
    /// It can run again.
    Repeatable,
    /// It runs once.
    Once,
    /// It makes views of this storage, and runs again with it.
    View(u32),
}

/// A storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Storage {
    /// Bytes of the device that is planned; 0 for those of others.
    pub(crate) bytes: u64,
    /// The op that makes it.
    pub(crate) producer: u32,
    /// The storage whose block it takes, or `NONE`.
    pub(crate) block_of: u32,
    /// From this op on it must not be made again, or `NONE`.
    pub(crate) frozen_from: u32,
    /// A constant that nothing writes into.
    pub(crate) constant: bool,
}

impl Step {
    /// Ops and constants of the recording.
    pub fn len(&self) -> usize {
        self.numbered.len()
    }

    /// Whether the recording has neither.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Nanoseconds that all ops take, each once.
    pub fn cost_ns(&self) -> u64 {
        self.cost
    }

    /// Whether a run of an op that writes in place takes the block of the old value, if the op is the last to read
    /// all of those that it writes into.
    pub(crate) fn old_block(&self, storage: u32) -> Option<u32> {
        let old = self.storages[storage as usize].block_of;
        (old != NONE).then_some(old)
    }
}
