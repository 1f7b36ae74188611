//! Dynamic programs over subchains, independent of the tables that they fill.
//!
//! The memory `x` of a state is the memory that its subchain may use, the activation that it starts from included.
//! (The paper's `m` leaves that activation out: `x = m + w_a[s-1]`. With `x`, moving the kept activation on changes
//! nothing.)

use crate::chain::model::sequence::{Action, Op};
use std::ops::Range;

/// A state of a dynamic program: its row in the table.
pub(crate) type State = usize;

/// One way to go on from a state with memory `x`: if `x >= need`, it takes `time`, and the times of the states that
/// follow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Choice {
    /// Time of the operations of this step alone.
    pub(crate) time: f64,
    /// The time of those forward operations of it that run again later, over the time of the shortest one.
    pub(crate) again: f32,
    /// Least memory for these operations, in units.
    pub(crate) need: i64,
    /// The state that follows, and the memory that it has less.
    pub(crate) first: Option<(State, i64)>,
    /// The state that follows the first one, with all the memory.
    pub(crate) second: Option<State>,
    /// The operations themselves.
    pub(crate) step: Step,
}

/// Operations of a choice, before and after those of its first state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Step {
    /// `B^s`: the saved set is there.
    Last { s: usize },
    /// `Fall^s B^s`, with the first state, if there is one, in between.
    All { s: usize },
    /// `Fnone^s`.
    Move { s: usize },
    /// `Fsave^s`.
    Save { s: usize },
    /// `Fck^s`, `Fnone` up to the stage before `to`.
    Checkpoint { s: usize, to: usize },
}

impl Step {
    /// Operations before the first state.
    pub(crate) fn before(self, mut emit: impl FnMut(Op)) {
        match self {
            Step::Last { .. } => {}
            Step::All { s } => emit(Op::new(Action::ForwardAll, s)),
            Step::Move { s } => emit(Op::new(Action::ForwardNone, s)),
            Step::Save { s } => emit(Op::new(Action::ForwardSave, s)),
            Step::Checkpoint { s, to } => {
                emit(Op::new(Action::ForwardCheckpoint, s));
                (s + 1..to).for_each(|l| emit(Op::new(Action::ForwardNone, l)));
            }
        }
    }

    /// The operation after the first state.
    pub(crate) fn after(self) -> Option<Op> {
        match self {
            Step::Last { s } | Step::All { s } => Some(Op::new(Action::Backward, s)),
            _ => None,
        }
    }
}

/// Choices of a state that differ only in the place at which its stages are split in two.
pub(crate) struct Splits<'a> {
    /// The state.
    pub(crate) state: State,
    /// The number of these splits among those of the state.
    pub(crate) variant: usize,
    /// The places.
    pub(crate) places: Range<usize>,
    /// The family of the first states.
    pub(crate) firsts: usize,
    /// Units that the state keeps, and the first states have less.
    pub(crate) less: i64,
    /// The family of the second states.
    pub(crate) seconds: usize,
    /// [`Choice::again`] by place; rises.
    pub(crate) times: &'a [f32],
}

/// The part that a state has in a split.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Role {
    First,
    Second,
}

/// A dynamic program: its states, and the choices in each.
///
/// The states that splits of one state lead to, place by place, are a *family*. A state is a member of one family as
/// a first state and of another as a second state.
pub(crate) trait Recurrence {
    /// Number of states.
    fn states(&self) -> usize;

    /// The state that is the whole chain.
    fn root(&self) -> State;

    /// Visits every state once, after the states that its choices lead to, in an order that is kind to caches. Stops
    /// at the visitor's first error.
    fn in_order<E>(&self, visit: impl FnMut(State) -> Result<(), E>) -> Result<(), E>;

    /// The choices in a state that do not split its stages.
    fn singles(&self, state: State, visit: impl FnMut(Choice));

    /// The choices in a state that split its stages; the visitor is called at most once for each variant.
    fn splits(&self, state: State, visit: impl FnMut(Splits<'_>));

    /// The most splits of a variant that a state has.
    fn most_splits(&self) -> usize;

    /// Units that a state keeps for its second states; the same for all members of a family of second states.
    fn kept(&self, state: State) -> i64;

    /// One of the splits.
    fn split(&self, splits: &Splits<'_>, place: usize) -> Choice;

    /// The places that members of each family have.
    fn families(&self, role: Role) -> Vec<Range<usize>>;

    /// The family of a state, and its place there.
    fn member(&self, role: Role, state: State) -> (usize, usize);

    /// All choices in a state.
    fn choices(&self, state: State, mut visit: impl FnMut(Choice)) {
        self.singles(state, &mut visit);
        self.splits(state, |splits| {
            for place in splits.places.clone() {
                visit(self.split(&splits, place));
            }
        });
    }
}
