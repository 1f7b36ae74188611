//! Reasons against a plan of a joint graph.

use crate::cut::error::short::Short;
use std::fmt;

/// Why there is no plan of a joint graph.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum CutError {
    /// Something may be neither saved nor recomputed.
    NoCut {
        /// The node that is not to be recomputed.
        banned: String,
        /// Why not.
        reason: &'static str,
        /// From that node on to what the backward pass needs: values that are not savable.
        path: Vec<String>,
        /// The op of the backward pass that needs the last of them, or the last itself if it is an output.
        needed_by: String,
    },
    /// A list names something that is no node.
    Unknown {
        /// The list.
        list: &'static str,
        /// The name.
        name: String,
    },
    /// A ban that no one may lift was to be lifted.
    NotLifted {
        /// The node.
        node: String,
        /// Its ban.
        reason: &'static str,
    },
    /// Two fusion groups read one another, so that neither could run first.
    CircularGroups {
        /// A group.
        one: u32,
        /// Another.
        other: u32,
    },
    /// Nothing that was found fits in the budget.
    Infeasible {
        /// The budget, in bytes.
        budget: u64,
        /// The smallest budget for which a plan was found, in bytes.
        smallest: u64,
        /// Whether it is proven that no plan fits, rather than that none was found.
        certain: bool,
    },
    /// A flow and a cut that should prove one another do not: an error in the solver.
    Uncertified(String),
    /// The progress callback asked to stop.
    Interrupted,
}

impl fmt::Display for CutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CutError::NoCut {
                banned,
                reason,
                path,
                needed_by,
            } => no_cut(f, Short(banned), reason, path, Short(needed_by)),
            CutError::Unknown { list, name } => {
                write!(f, "{list} names {}, which is no node", Short(name))
            }
            CutError::NotLifted { node, reason } => write!(
                f,
                "{} cannot be recomputed, whatever it costs ({reason}); take it off the list",
                Short(node)
            ),
            CutError::CircularGroups { one, other } => write!(
                f,
                "groups {one} and {other} read one another, so that neither can run first"
            ),
            CutError::Infeasible {
                budget,
                smallest,
                certain,
            } => infeasible(f, *budget, *smallest, *certain),
            CutError::Uncertified(reason) => {
                write!(
                    f,
                    "the cut has no proof ({reason}); this is an error in remat"
                )
            }
            CutError::Interrupted => write!(f, "planning was interrupted"),
        }
    }
}

impl std::error::Error for CutError {}

fn no_cut(
    f: &mut fmt::Formatter<'_>,
    banned: Short<'_>,
    reason: &str,
    path: &[String],
    needed_by: Short<'_>,
) -> fmt::Result {
    const TOLD: usize = 8;
    write!(f, "{banned} is not to be recomputed ({reason}), ")?;
    for name in path.iter().take(TOLD) {
        write!(f, "{} is not savable, ", Short(name))?;
    }
    write!(f, "and {needed_by} needs it in the backward pass")
}

fn infeasible(
    f: &mut fmt::Formatter<'_>,
    budget: u64,
    smallest: u64,
    certain: bool,
) -> fmt::Result {
    let found = if certain {
        "fits"
    } else {
        "was found that fits"
    };
    write!(
        f,
        "no plan {found} in {budget} bytes; the smallest feasible budget is {smallest} bytes"
    )
}
