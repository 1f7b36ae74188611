//! The operations of table 1, and sequences of them.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// An operation on a stage (table 1 of the paper).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// `Fnone`: forward; the input goes.
    ForwardNone,
    /// `Fck`: forward; the input stays.
    ForwardCheckpoint,
    /// `Fall`: forward, and the saved set that backward needs is kept; the input stays.
    ForwardAll,
    /// `Fsave`: as `Fall`, but the input goes and has to be recomputed before the backward operation. Not in the paper.
    ForwardSave,
    /// `B`: backward.
    Backward,
}

impl Action {
    const ALL: [Action; 5] = [
        Action::ForwardNone,
        Action::ForwardCheckpoint,
        Action::ForwardAll,
        Action::ForwardSave,
        Action::Backward,
    ];

    /// Its name in plans.
    pub fn name(self) -> &'static str {
        match self {
            Action::ForwardNone => "Fnone",
            Action::ForwardCheckpoint => "Fck",
            Action::ForwardAll => "Fall",
            Action::ForwardSave => "Fsave",
            Action::Backward => "B",
        }
    }
}

/// One operation of a sequence; written `["Fck",1]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Op {
    /// The operation.
    pub action: Action,
    /// The stage, from 1 on.
    pub stage: usize,
}

impl Op {
    pub(crate) fn new(action: Action, stage: usize) -> Op {
        Op { action, stage }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.action.name(), self.stage)
    }
}

impl Serialize for Op {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.action.name(), self.stage).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Op {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Op, D::Error> {
        let (name, stage) = <(String, usize)>::deserialize(deserializer)?;
        let action = Action::ALL.into_iter().find(|action| action.name() == name);
        let unknown =
            || format!("no operation is called {name:?}; known are Fnone, Fck, Fall, Fsave and B");
        Ok(Op {
            action: action.ok_or_else(|| D::Error::custom(unknown()))?,
            stage,
        })
    }
}

/// The most operations of a sequence that a planner writes down.
pub(crate) const LONGEST: usize = 1 << 24;

/// A plan: the order of operations, and its cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Name of the strategy.
    pub strategy: String,
    /// How finely memory was counted: a number of slots, or `exact`.
    pub slots: String,
    /// Number of stages of the chain, the loss included.
    pub stages: usize,
    /// The budget, in bytes.
    pub budget_bytes: u64,
    /// Sum of the times of all operations, in the chain's unit.
    pub makespan: f64,
    /// Highest memory, in bytes.
    pub peak_bytes: u64,
    /// The makespan over that of a step that recomputes nothing.
    pub overhead: f64,
    /// Seconds that planning took.
    pub planning_seconds: f64,
    /// The operations in order.
    pub sequence: Vec<Op>,
}

/// The sequence of one pass for segments that start at these stages, the first at 1, rising: each segment but the
/// last keeps its input alone and is computed again as a whole before its backward operations.
pub(crate) fn segmented(stages: usize, starts: &[usize]) -> Vec<Op> {
    let mut ops = Vec::with_capacity(3 * stages);
    let ends = starts.iter().skip(1).copied().chain([stages + 1]);
    let segments: Vec<(usize, usize)> = starts.iter().copied().zip(ends).collect();
    let Some((last, before)) = segments.split_last() else {
        return ops;
    };
    for &(start, end) in before {
        ops.push(Op::new(Action::ForwardCheckpoint, start));
        ops.extend((start + 1..end).map(|l| Op::new(Action::ForwardNone, l)));
    }
    for &(start, end) in std::iter::once(last).chain(before.iter().rev()) {
        ops.extend((start..end).map(|l| Op::new(Action::ForwardAll, l)));
        ops.extend((start..end).rev().map(|l| Op::new(Action::Backward, l)));
    }
    ops
}
