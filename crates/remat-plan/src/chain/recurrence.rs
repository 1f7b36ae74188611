//! Dynamic programs over subchains, told apart from the tables that they fill.
//!
//! The memory `x` of a state is all that its subchain may use, the activation that it starts from included. (The paper's `m`
//! leaves that out: `x = m + w_a[s-1]`. So said, moving the kept activation on leaves `x` as it is.)

use super::sequence::{Action, Op};

/// A state of a dynamic program: its row in the table.
pub(crate) type State = usize;

/// One way to go on from a state with memory `x`: if `x >= need`, it takes `time`, and what the states that follow take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Choice {
    /// Time of the operations of this step alone.
    pub(crate) time: f64,
    /// Least memory for these operations, in units.
    pub(crate) need: i64,
    /// What follows with so much less memory.
    pub(crate) first: Option<(State, i64)>,
    /// What follows that with all the memory.
    pub(crate) second: Option<State>,
    /// The operations themselves.
    pub(crate) step: Step,
}

/// Operations of a choice, before and after what its first state does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Step {
    /// `B^s`: what it needs is there.
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

/// What is done next while a table is filled. Several states may be under way at a time, each in a lane of its own.
pub(crate) enum Round {
    /// The state in this lane has this choice. Choices differ in order by use: those that are apart come before those between.
    Offer { lane: usize, choice: Choice },
    /// The state in this lane has no more choices; the lane is free.
    Done { lane: usize, state: State },
}

/// States that are under way at a time at most.
pub(crate) const LANES: usize = 8;

/// So many passes over choices, each skipping what the others take: the better what is known, the sooner the rest is ruled out.
const PASSES: [usize; 8] = [0, 4, 2, 6, 1, 3, 5, 7];

/// Numbers in such an order that those apart come before those between.
pub(crate) fn apart(range: std::ops::Range<usize>) -> impl Iterator<Item = usize> {
    let each = move |first| (range.start + first..range.end).step_by(PASSES.len());
    PASSES.into_iter().flat_map(each)
}

/// A dynamic program: its states, and the choices in each.
pub(crate) trait Recurrence {
    /// Number of states.
    fn states(&self) -> usize;

    /// The state that is the whole chain.
    fn root(&self) -> State;

    /// Names every state once, those that a state's choices lead to before it; stops where the visitor breaks.
    fn in_order<E>(&self, visit: impl FnMut(State) -> Result<(), E>) -> Result<(), E>;

    /// All choices in a state.
    fn choices(&self, state: State, visit: impl FnMut(Choice));

    /// Every choice of every state, those that it leads to done before, in an order that is kind to caches.
    fn rounds<E>(&self, mut visit: impl FnMut(Round) -> Result<(), E>) -> Result<(), E> {
        let mut choices = Vec::new();
        self.in_order(|state| {
            choices.clear();
            self.choices(state, |choice| choices.push(choice));
            for index in apart(0..choices.len()) {
                let choice = choices[index];
                visit(Round::Offer { lane: 0, choice })?;
            }
            visit(Round::Done { lane: 0, state })
        })
    }
}
