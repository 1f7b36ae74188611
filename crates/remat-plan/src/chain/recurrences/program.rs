//! The dynamic programs by strategy.

use crate::chain::model::chain::Chain;
use crate::chain::model::sequence::{Op, segmented};
use crate::chain::model::sizes::Sizes;
use crate::chain::model::strategy::Strategy;
use crate::chain::recurrences::floating::{Floating, Inputs};
use crate::chain::recurrences::persistent::{Persistent, Saving};
use crate::chain::recurrences::recurrence::{Choice, Recurrence, Role, Splits, State};
use std::ops::Range;

/// A class of plans whose optimum a dynamic program finds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Class {
    Persistent(Saving),
    Floating(Inputs),
}

impl Class {
    /// The class that a strategy is optimal in, if it is in one.
    pub(crate) fn of(strategy: Strategy) -> Option<Class> {
        match strategy {
            Strategy::Persistent => Some(Class::Persistent(Saving::Ahead)),
            Strategy::Revolve => Some(Class::Persistent(Saving::JustBefore)),
            Strategy::Floating => Some(Class::Floating(Inputs::Kept)),
            Strategy::Free => Some(Class::Floating(Inputs::Free)),
            _ => None,
        }
    }

    /// States for so many stages.
    pub(crate) fn states(self, stages: usize) -> u128 {
        match self {
            Class::Persistent(_) => Persistent::count(stages),
            Class::Floating(inputs) => Floating::count(stages, inputs),
        }
    }

    /// Its fastest plan for so many stages, whatever the memory: it keeps everything, or every activation.
    pub(crate) fn fastest(self, stages: usize) -> Vec<Op> {
        match self {
            Class::Persistent(Saving::JustBefore) => segmented(stages, &Vec::from_iter(1..=stages)),
            _ => segmented(stages, &[1]),
        }
    }

    /// Its program for a chain with these sizes.
    pub(crate) fn program<'a>(self, chain: &'a Chain, sizes: &'a Sizes) -> Program<'a> {
        match self {
            Class::Persistent(saving) => Program::Persistent(Persistent::new(chain, sizes, saving)),
            Class::Floating(inputs) => Program::Floating(Floating::new(chain, sizes, inputs)),
        }
    }
}

/// One of the dynamic programs.
pub(crate) enum Program<'a> {
    Persistent(Persistent<'a>),
    Floating(Floating<'a>),
}

impl Recurrence for Program<'_> {
    fn states(&self) -> usize {
        match self {
            Program::Persistent(program) => program.states(),
            Program::Floating(program) => program.states(),
        }
    }

    fn root(&self) -> State {
        match self {
            Program::Persistent(program) => program.root(),
            Program::Floating(program) => program.root(),
        }
    }

    fn in_order<E>(&self, visit: impl FnMut(State) -> Result<(), E>) -> Result<(), E> {
        match self {
            Program::Persistent(program) => program.in_order(visit),
            Program::Floating(program) => program.in_order(visit),
        }
    }

    fn singles(&self, state: State, visit: impl FnMut(Choice)) {
        match self {
            Program::Persistent(program) => program.singles(state, visit),
            Program::Floating(program) => program.singles(state, visit),
        }
    }

    fn splits(&self, state: State, visit: impl FnMut(Splits<'_>)) {
        match self {
            Program::Persistent(program) => program.splits(state, visit),
            Program::Floating(program) => program.splits(state, visit),
        }
    }

    fn most_splits(&self) -> usize {
        match self {
            Program::Persistent(program) => program.most_splits(),
            Program::Floating(program) => program.most_splits(),
        }
    }

    fn kept(&self, state: State) -> i64 {
        match self {
            Program::Persistent(program) => program.kept(state),
            Program::Floating(program) => program.kept(state),
        }
    }

    fn split(&self, splits: &Splits<'_>, place: usize) -> Choice {
        match self {
            Program::Persistent(program) => program.split(splits, place),
            Program::Floating(program) => program.split(splits, place),
        }
    }

    fn families(&self, role: Role) -> Vec<Range<usize>> {
        match self {
            Program::Persistent(program) => program.families(role),
            Program::Floating(program) => program.families(role),
        }
    }

    fn member(&self, role: Role, state: State) -> (usize, usize) {
        match self {
            Program::Persistent(program) => program.member(role, state),
            Program::Floating(program) => program.member(role, state),
        }
    }
}
