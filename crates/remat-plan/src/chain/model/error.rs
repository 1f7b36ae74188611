//! What is wrong with a chain, a plan or a budget.

use crate::chain::model::sequence::Op;
use std::fmt;

/// Why a chain cannot be planned.
#[derive(Clone, Debug, PartialEq)]
pub enum ChainError {
    /// It is not the JSON of a chain; the parser says where.
    Json(String),
    /// It has no stage.
    Empty,
    /// A time is no number, negative, or beyond all measure.
    Time {
        /// The stage, from 1 on.
        stage: usize,
        /// The field.
        field: &'static str,
        /// What it says.
        value: f64,
    },
    /// More of a saved set is said to be gone early than there is of it.
    Released {
        /// The stage, from 1 on.
        stage: usize,
        /// `released_bytes`.
        released: u64,
        /// `saved_bytes`.
        saved: u64,
    },
    /// All bytes together are more than 63 bits hold.
    Bytes {
        /// The sum.
        sum: u128,
    },
    /// All times together are beyond all measure.
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
pub enum PlanError {
    /// The strategy has no plan within the budget.
    Infeasible {
        /// Name of the strategy.
        strategy: String,
        /// Bytes that it was to fit in.
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
        /// So many slots would do, if any do.
        slots: Option<usize>,
    },
    /// Exact planning met too many different sizes.
    TooFine {
        /// Sizes and times noted when it was given up.
        entries: usize,
    },
    /// The sequence would be longer than can be handled.
    TooLong {
        /// Operations at most.
        limit: usize,
    },
    /// Whoever was told of the progress did not want to go on.
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
            } => {
                let gib = |bytes: f64| bytes / f64::from(1 << 30);
                write!(
                    f,
                    "planning {stages} stages by {strategy} takes tables of {:.1} GiB, more than the {:.1} GiB allowed; ",
                    gib(*needed as f64),
                    gib(*limit as f64)
                )?;
                match slots {
                    Some(slots) => write!(f, "--slots {slots} or merging stages would do"),
                    None => write!(
                        f,
                        "merge stages, or take a strategy without tables (periodic, chen-sqrt, treeverse)"
                    ),
                }
            }
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

impl std::error::Error for PlanError {}

/// Why a sequence is not valid.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// Position of the operation, from 1 on; one more than there are if something is missing in the end.
    pub position: usize,
    /// The operation, unless the end is at fault.
    pub op: Option<Op>,
    /// What is wrong.
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
