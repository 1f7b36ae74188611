//! Steps that cannot be planned, and budgets that cannot be met.

use remat_core::{Bytes, Cost};
use std::fmt;

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StepError {
    /// An event names a tensor that no earlier event made, or that does not fit.
    Event {
        /// The index of the event.
        event: usize,
        /// The fault.
        fault: &'static str,
    },
    /// The step has more than 2^31 ops or storages.
    TooLarge,
    /// Sizes or costs of the step add up to more than 2^61, half of what a trace may hold.
    SumTooLarge {
        /// The numbers that are added up.
        summed: Summed,
        /// Their sum, or the largest number of 64 bits where it is more.
        sum: u64,
    },
    /// The step reads a value that an op wrote into, and that cannot be made again.
    Overwritten,
    /// No plan within the budget was found.
    Budget {
        /// The budget, in bytes.
        budget: Bytes,
        /// The smallest budget for which a plan was found, in bytes.
        smallest: Bytes,
    },
    /// The best plan found of a step that an engine recorded replays more than the engine did, by more than a hundredth
    /// of the step's time.
    NoGain {
        /// The cost of replays in the plan.
        planned: Cost,
        /// The cost of those in the step.
        replayed: Cost,
    },
}

/// Numbers of a step that are added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Summed {
    /// Bytes of results and workspaces.
    Sizes,
    /// Nanoseconds of ops.
    Costs,
}

impl fmt::Display for Summed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Summed::Sizes => "sizes",
            Summed::Costs => "costs",
        })
    }
}

impl fmt::Display for StepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StepError::Event { event, fault } => write!(
                f,
                "event {event} {fault}; check the trace with `remat trace check`"
            ),
            StepError::TooLarge => {
                f.write_str("the step has more than 2^31 ops or storages; record a shorter one")
            }
            StepError::SumTooLarge { summed, sum } => write!(
                f,
                "the {summed} of the step add up to {sum}, and steps are planned up to 2^61; record a shorter one"
            ),
            StepError::Overwritten => f.write_str(
                "the step reads a value after an op wrote into it, and it cannot be made again; \
                 no order of its ops is a plan",
            ),
            StepError::Budget { budget, smallest } => write!(
                f,
                "no plan fits into {budget}; the smallest budget with one is {smallest} ({} bytes)",
                smallest.0
            ),
            StepError::NoGain { planned, replayed } => write!(
                f,
                "the best plan found recomputes for {} ns, without it the step does for {} ns",
                planned.0, replayed.0
            ),
        }
    }
}

impl std::error::Error for StepError {}
