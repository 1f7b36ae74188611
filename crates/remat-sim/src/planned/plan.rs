//! Plans of recorded steps, as the engine is told them.

use remat_core::{Alignment, Bytes, Error};
use std::fmt;

/// A plan of a recorded step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The bytes of device 0, where they are only counted.
    pub budget: Bytes,
    /// All runs and drops, in order.
    pub actions: Vec<PlanAction>,
    /// The arena that the plan runs in; `None` where bytes are only counted.
    pub arena: Option<PlannedArena>,
}

/// One thing that a plan has happen.
///
/// Ops are the recording's constants and ops, numbered from 0 in their order. Storages are their results that are no
/// views, constants included, numbered from 0 in the order of their creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanAction {
    /// An op runs. A first run that writes in place takes the blocks of the old values; a later one writes into copies.
    Run(u32),
    /// An op runs again, and takes the blocks of the old values.
    RunInPlace(u32),
    /// A storage is dropped.
    Drop(u32),
}

/// An arena, and where the blocks of a plan lie in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedArena {
    /// The bytes of the arena.
    pub bytes: Bytes,
    /// Sizes and addresses are multiples of this.
    pub alignment: Alignment,
    /// The address of each block, in the order in which the plan takes them: of each run its results that take a block,
    /// in their order, and then its workspace.
    pub addresses: Vec<u64>,
}

impl Plan {
    /// The budget of the run: what is counted, or the whole units of the alignment that hold the arena.
    pub fn memory(&self) -> Bytes {
        match &self.arena {
            None => self.budget,
            Some(arena) => {
                let unit = arena.alignment.bytes();
                let units = arena.bytes.0.checked_next_multiple_of(unit);
                Bytes(units.unwrap_or(arena.bytes.0))
            }
        }
    }
}

/// Why a plan does not fit a recorded step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// The index of the action; the number of actions for the end of the plan.
    pub action: usize,
    /// The reason.
    pub reason: MisfitReason,
}

/// Why an action of a plan does not fit a recorded step.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MisfitReason {
    /// The step has only so many constants and ops.
    NoSuchOp(usize),
    /// The step has only so many storages.
    NoSuchStorage(usize),
    /// The op of this number has to run first, since first runs are in program order; or never runs.
    NotYet(usize),
    /// The plan has no address for a block.
    NoAddress,
    /// The engine refuses it.
    Engine(Error),
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "action {} does not fit the step: ", self.action)?;
        match &self.reason {
            MisfitReason::NoSuchOp(ops) => write!(f, "the step has {ops} constants and ops"),
            MisfitReason::NoSuchStorage(storages) => write!(f, "the step has {storages} storages"),
            MisfitReason::NotYet(op) => write!(f, "op {op} has to run first"),
            MisfitReason::NoAddress => f.write_str("a block has no address"),
            MisfitReason::Engine(error) => error.fmt(f),
        }?;
        f.write_str("; plan this step anew")
    }
}

impl std::error::Error for Misfit {}
