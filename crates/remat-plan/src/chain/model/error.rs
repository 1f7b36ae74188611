//! Errors in chains, in sequences, and of planning.

use crate::chain::model::sequence::Op;
use std::fmt;

/// Why a chain cannot be planned.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ChainError {
    /// The text is not the JSON of a chain; the parser says where.
    Json(String),
    /// The chain has no stage.
    Empty,
    /// A time is no number, negative, or above 1e200.
    Time {
        /// The stage, from 1 on.
        stage: usize,
        /// The field.
        field: &'static str,
        /// The value of the field.
        value: f64,
    },
    /// A stage releases more bytes of its saved set early than the set has.
    Released {
        /// The stage, from 1 on.
        stage: usize,
        /// `released_bytes`.
        released: u64,
        /// `saved_bytes`.
        saved: u64,
    },
    /// The sum of all bytes does not fit in 63 bits.
    Bytes {
        /// The sum.
        sum: u128,
    },
    /// The sum of all times is above 1e200.
    Times {
        /// The sum.
        sum: f64,
    },
}

impl fmt::Display for ChainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChainError::Json(reason) => write!(
                f,
                "no chain: {reason}; wanted is {{\"input_bytes\": .., \"stages\": [{{\"forward_time\": .., \
                 \"backward_time\": .., \"activation_bytes\": .., \"saved_bytes\": ..}}, ..]}}"
            ),
            ChainError::Empty => write!(
                f,
                "the chain has no stages; the last stage is the loss, so at least one is needed"
            ),
            ChainError::Time {
                stage,
                field,
                value,
            } => write!(
                f,
                "stage {stage}: {field} is {value:?}; wanted is a number from 0 to 1e200"
            ),
            ChainError::Released {
                stage,
                released,
                saved,
            } => write!(
                f,
                "stage {stage}: released_bytes is {released}; wanted is at most its saved_bytes, {saved}"
            ),
            ChainError::Bytes { sum } => write!(
                f,
                "the sizes add up to {sum} bytes, more than 2^63 - 1; check their unit"
            ),
            ChainError::Times { sum } => write!(
                f,
                "the times add up to {sum:e}, more than 1e200; choose a larger unit"
            ),
        }
    }
}

impl std::error::Error for ChainError {}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum PlanError {
    /// The strategy has no plan within the budget.
    Infeasible {
        /// Name of the strategy.
        strategy: String,
        /// The budget, in bytes.
        budget: u64,
        /// The smallest budget in which the strategy has a plan, in bytes.
        smallest: u64,
    },
    /// The tables would take more memory than planning may.
    TooLarge {
        /// Name of the strategy.
        strategy: String,
        /// Number of stages.
        stages: usize,
        /// Bytes of the tables.
        needed: u128,
        /// Bytes that they may have.
        limit: u64,
        /// The most slots whose tables are small enough, if any are.
        slots: Option<usize>,
    },
    /// Exact planning met too many different sizes.
    TooFine {
        /// Pairs of a size and a time in the tables when planning was given up.
        entries: usize,
    },
    /// The sequence would be longer than can be handled.
    TooLong {
        /// The most operations of a sequence.
        limit: usize,
    },
    /// The progress callback asked to stop.
    Interrupted,
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlanError::Infeasible {
                strategy,
                budget,
                smallest,
            } => write!(
                f,
                "no {strategy} plan fits in {budget} bytes; the smallest feasible budget is {smallest} bytes"
            ),
            PlanError::TooLarge {
                strategy,
                stages,
                needed,
                limit,
                slots,
            } => too_large(f, strategy, *stages, (*needed, *limit), *slots),
            PlanError::TooFine { entries } => write!(
                f,
                "exact planning was given up at {entries} different sizes; use --slots 500 or more"
            ),
            PlanError::TooLong { limit } => write!(
                f,
                "the plan takes more than {limit} operations; give it a larger budget or merge stages"
            ),
            PlanError::Interrupted => write!(f, "planning was interrupted"),
        }
    }
}

/// Says how large tables would be, and which would be small enough.
fn too_large(
    f: &mut fmt::Formatter<'_>,
    strategy: &str,
    stages: usize,
    (needed, limit): (u128, u64),
    slots: Option<usize>,
) -> fmt::Result {
    let gib = |bytes: f64| bytes / f64::from(1 << 30);
    write!(
        f,
        "planning {stages} stages by {strategy} takes tables of {:.1} GiB, more than the {:.1} GiB allowed; ",
        gib(needed as f64),
        gib(limit as f64)
    )?;
    match slots {
        Some(slots) => write!(f, "--slots {slots} or merging stages would do"),
        None => write!(
            f,
            "merge stages, or take a strategy without tables (periodic, chen-sqrt, treeverse)"
        ),
    }
}

impl std::error::Error for PlanError {}

/// Why a sequence is not valid.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// Position of the operation, from 1 on; one more than the number of operations if something is missing in the end.
    pub position: usize,
    /// The operation, unless the end is at fault.
    pub op: Option<Op>,
    /// The rule that it breaks.
    pub reason: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.op {
            Some(op) => write!(f, "operation {} ({op}): {}", self.position, self.reason),
            None => write!(f, "after operation {}: {}", self.position - 1, self.reason),
        }
    }
}

impl std::error::Error for Fault {}
