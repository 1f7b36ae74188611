//! Where a plan is to lead, and the ways there.

use crate::config::ThrashLimit;
use crate::ids::{OpId, TensorId};

/// The aim of a plan: all targets resident at once, then room for an op.
#[derive(Default)]
pub(crate) struct Goal {
    pub(crate) targets: Vec<TensorId>,
    /// The op that is to run for the first time; its inputs are the targets from `inputs_from` on.
    pub(crate) op: Option<OpId>,
    pub(crate) inputs_from: usize,
}

impl Goal {
    /// The tensors that the op, or the front end itself, is to read.
    pub(crate) fn inputs(&self) -> &[TensorId] {
        &self.targets[self.inputs_from..]
    }
}

/// In which order the missing ancestors are replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// DTR's own: each op's inputs as they are needed; inputs that were dropped meanwhile are brought back again.
    Dtr,
    /// Each once, held until its last use (Sethi and Ullman 1970).
    SethiUllman,
    /// Each when it is read next, held as its next use is near (Belady 1966).
    Belady,
}

/// In which order an op's inputs are seen to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InputOrder {
    Given,
    /// By the bytes that bringing them back takes.
    LargestNeedFirst,
    SmallestNeedFirst,
}

/// Which resident inputs are locked before the missing ones are seen to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// Those of every op.
    All,
    /// The goal's own.
    Targets,
    /// None: each is locked when its turn comes.
    Nothing,
}

/// Which storages are evicted before their room is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EarlyEviction {
    None,
    /// Every candidate at the start.
    AtStart,
    /// Every candidate at the start and every storage as soon as nothing holds it.
    Always,
}

/// A way to the goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Strategy {
    pub(super) order: Order,
    pub(super) hold: Hold,
    pub(super) inputs: InputOrder,
    pub(super) early: EarlyEviction,
    /// Most replays that the attempt may take.
    pub(super) bound: u64,
}

/// One attempt at the goal.
#[derive(Clone, Copy)]
pub(super) struct Attempt<'a> {
    pub(super) goal: &'a Goal,
    pub(super) strategy: Strategy,
    pub(super) thrash: ThrashLimit,
}
