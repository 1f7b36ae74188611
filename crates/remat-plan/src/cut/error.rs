//! What is wrong with a joint graph, or stands against a plan of it.

use crate::cut::graph::description::Quantity;
use std::fmt;

/// Why a joint graph cannot be planned. Nodes are told by name.
#[derive(Clone, Debug, PartialEq)]
pub enum GraphError {
    /// It is not the JSON of a joint graph; the parser says where.
    Json(String),
    /// There are more nodes, or more inputs of nodes, than can be handled.
    TooMany {
        /// Nodes and inputs of nodes.
        found: usize,
        /// The most that there may be.
        most: usize,
    },
    /// A kernel is said to read more values in place of one than can be handled.
    SharedReads {
        /// `shared_reads`.
        found: u32,
        /// The most that there may be.
        most: u32,
    },
    /// Two nodes have this name.
    Duplicate {
        /// The name.
        name: String,
    },
    /// A node reads, or is a view of, something that is no node.
    UnknownInput {
        /// The node.
        node: String,
        /// What it names.
        input: String,
    },
    /// A list names something that is no node.
    UnknownListed {
        /// The list.
        list: &'static str,
        /// What it names.
        name: String,
    },
    /// The nodes read one another in a circle.
    Cycle {
        /// Each reads the one before, the first the last.
        names: Vec<String>,
    },
    /// A number is not a whole one, or negative.
    Number {
        /// The node.
        node: String,
        /// The field.
        field: &'static str,
        /// What it says.
        value: Quantity,
    },
    /// The numbers of all nodes together are more than 61 bits hold.
    Sum {
        /// The field.
        field: &'static str,
        /// The sum.
        sum: u128,
        /// The node with the largest.
        largest: String,
    },
    /// An input or tangent is computed.
    Computed {
        /// The list that it is in.
        list: &'static str,
        /// The node.
        node: String,
        /// What it reads.
        input: String,
    },
    /// A node is an input and a tangent.
    TwoRoles {
        /// The node.
        node: String,
    },
    /// A forward output is computed from a tangent.
    TangentInForward {
        /// The tangent.
        tangent: String,
        /// The output.
        output: String,
    },
    /// A node that reads nothing is neither given nor made by an op.
    Disconnected {
        /// The node.
        node: String,
        /// An output that hangs on it.
        output: Option<String>,
    },
    /// A view shares the memory of something that it does not read.
    View {
        /// The view.
        node: String,
        /// What it says it is a view of.
        base: String,
    },
}

impl fmt::Display for GraphError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GraphError::Json(reason) => write!(
                f,
                "no joint graph: {reason}; wanted is {{\"nodes\": [{{\"name\": .., \"bytes\": .., \"inputs\": [..]}}, ..], \
                 \"inputs\": [..], \"tangents\": [..], \"forward_outputs\": [..], \"backward_outputs\": [..]}}"
            ),
            GraphError::TooMany { found, most } => write!(
                f,
                "{found} nodes and inputs of nodes, more than the {most} that can be handled; split the graph"
            ),
            GraphError::SharedReads { found, most } => {
                write!(f, "shared_reads is {found}; wanted is at most {most}")
            }
            GraphError::Duplicate { name } => {
                write!(f, "two nodes are called {}; give them names of their own", Short(name))
            }
            GraphError::UnknownInput { node, input } => write!(
                f,
                "{} reads {}, which is no node; add it or correct the name",
                Short(node),
                Short(input)
            ),
            GraphError::UnknownListed { list, name } => write!(
                f,
                "{list} names {}, which is no node; add it or correct the name",
                Short(name)
            ),
            GraphError::Cycle { names } => cycle(f, names),
            GraphError::Number { node, field, value } => write!(
                f,
                "{}: {field} is {value}; wanted is a whole number from 0 to 2^61 - 1",
                Short(node)
            ),
            GraphError::Sum { field, sum, largest } => write!(
                f,
                "{field} of all nodes add up to {sum}, more than 2^61 - 1 (the largest is that of {}); check the unit",
                Short(largest)
            ),
            GraphError::Computed { list, node, input } => write!(
                f,
                "{} is one of the {list} and reads {}; what is given is not computed",
                Short(node),
                Short(input)
            ),
            GraphError::TwoRoles { node } => {
                write!(f, "{} is an input and a tangent; it can be but one", Short(node))
            }
            GraphError::TangentInForward { tangent, output } => write!(
                f,
                "tangent {} feeds forward output {}; there are no tangents in the forward pass",
                Short(tangent),
                Short(output)
            ),
            GraphError::Disconnected { node, output } => {
                write!(f, "{} reads nothing, is no input or tangent, and has no op that makes it", Short(node))?;
                match output {
                    Some(output) if output != node => write!(f, "; output {} hangs on it", Short(output)),
                    _ => Ok(()),
                }
            }
            GraphError::View { node, base } => write!(
                f,
                "{} is said to be a view of {}, which it does not read",
                Short(node),
                Short(base)
            ),
        }
    }
}

impl std::error::Error for GraphError {}

fn cycle(f: &mut fmt::Formatter<'_>, names: &[String]) -> fmt::Result {
    const TOLD: usize = 8;
    write!(f, "the nodes read one another in a circle: ")?;
    for name in names.iter().take(TOLD) {
        write!(f, "{} -> ", Short(name))?;
    }
    if names.len() > TOLD {
        write!(f, "{} more -> ", names.len() - TOLD)?;
    }
    write!(f, "{}", Short(&names[0]))
}

/// Why there is no plan of a joint graph.
#[derive(Clone, Debug, PartialEq)]
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
        /// What it names.
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
        /// Bytes that the step was to fit in.
        budget: u64,
        /// The smallest budget for which a plan was found, in bytes.
        smallest: u64,
        /// No plan fits; otherwise none was found.
        certain: bool,
    },
    /// A flow and a cut that should prove one another do not: an error in the solver.
    Uncertified(String),
    /// Whoever was told of the progress did not want to go on.
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
            } => {
                write!(f, "{} is not to be recomputed ({reason}), ", Short(banned))?;
                for name in path.iter().take(8) {
                    write!(f, "{} is not savable, ", Short(name))?;
                }
                write!(f, "and {} needs it in the backward pass", Short(needed_by))
            }
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
            } => {
                let found = if *certain {
                    "fits"
                } else {
                    "was found that fits"
                };
                write!(f, "no plan {found} in {budget} bytes; the smallest feasible budget is {smallest} bytes")
            }
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

/// A name in quotes, shortened if it is very long.
pub(crate) struct Short<'a>(pub(crate) &'a str);

impl fmt::Display for Short<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const LONGEST: usize = 80;
        match self.0.char_indices().nth(LONGEST) {
            Some((end, _)) => write!(f, "{:?}..", &self.0[..end]),
            None => write!(f, "{:?}", self.0),
        }
    }
}
