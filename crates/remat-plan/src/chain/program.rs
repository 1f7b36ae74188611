//! The dynamic programs by strategy.

use super::floating::{Floating, Inputs};
use super::model::Chain;
use super::persistent::{Persistent, Saving};
use super::recurrence::{Choice, Recurrence, Round, State};
use super::sizes::Sizes;
use super::strategy::Strategy;

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

    /// Whether keeping everything is in the class.
    pub(crate) fn keeps_everything(self) -> bool {
        self != Class::Persistent(Saving::JustBefore)
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

    fn choices(&self, state: State, visit: impl FnMut(Choice)) {
        match self {
            Program::Persistent(program) => program.choices(state, visit),
            Program::Floating(program) => program.choices(state, visit),
        }
    }

    fn rounds<E>(&self, visit: impl FnMut(Round) -> Result<(), E>) -> Result<(), E> {
        match self {
            Program::Persistent(program) => program.rounds(visit),
            Program::Floating(program) => program.rounds(visit),
        }
    }
}
