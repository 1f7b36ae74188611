//! Errors in joint graphs.

use crate::cut::error::short::Short;
use crate::cut::graph::description::Quantity;
use std::fmt;

/// Why a joint graph cannot be planned. Errors name the nodes.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum GraphError {
    /// The text is not the JSON of a joint graph; the parser says where.
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
        /// The name.
        input: String,
    },
    /// A list names something that is no node.
    UnknownListed {
        /// The list.
        list: &'static str,
        /// The name.
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
        /// The value of the field.
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
        /// The input that it reads.
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
        /// The base that it names.
        base: String,
    },
}

impl fmt::Display for GraphError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GraphError::Json(reason) => json(f, reason),
            GraphError::TooMany { found, most } => too_many(f, *found, *most),
            GraphError::SharedReads { found, most } => {
                write!(f, "shared_reads is {found}; wanted is at most {most}")
            }
            GraphError::Duplicate { name } => duplicate(f, Short(name)),
            GraphError::UnknownInput { node, input } => unknown_input(f, Short(node), Short(input)),
            GraphError::UnknownListed { list, name } => unknown_listed(f, list, Short(name)),
            GraphError::Cycle { names } => cycle(f, names),
            GraphError::Number { node, field, value } => number(f, Short(node), field, *value),
            GraphError::Sum {
                field,
                sum,
                largest,
            } => sum_of(f, field, *sum, Short(largest)),
            GraphError::Computed { list, node, input } => {
                computed(f, list, Short(node), Short(input))
            }
            GraphError::TwoRoles { node } => two_roles(f, Short(node)),
            GraphError::TangentInForward { tangent, output } => {
                tangent_in_forward(f, Short(tangent), Short(output))
            }
            GraphError::Disconnected { node, output } => disconnected(f, node, output.as_deref()),
            GraphError::View { node, base } => view(f, Short(node), Short(base)),
        }
    }
}

impl std::error::Error for GraphError {}

fn json(f: &mut fmt::Formatter<'_>, reason: &str) -> fmt::Result {
    write!(
        f,
        "no joint graph: {reason}; wanted is {{\"nodes\": [{{\"name\": .., \"bytes\": .., \"inputs\": [..]}}, ..], \
         \"inputs\": [..], \"tangents\": [..], \"forward_outputs\": [..], \"backward_outputs\": [..]}}"
    )
}

fn too_many(f: &mut fmt::Formatter<'_>, found: usize, most: usize) -> fmt::Result {
    write!(
        f,
        "{found} nodes and inputs of nodes, more than the {most} that can be handled; split the graph"
    )
}

fn duplicate(f: &mut fmt::Formatter<'_>, name: Short<'_>) -> fmt::Result {
    write!(
        f,
        "two nodes are called {name}; give them names of their own"
    )
}

fn unknown_input(f: &mut fmt::Formatter<'_>, node: Short<'_>, input: Short<'_>) -> fmt::Result {
    write!(
        f,
        "{node} reads {input}, which is no node; add it or correct the name"
    )
}

fn unknown_listed(f: &mut fmt::Formatter<'_>, list: &str, name: Short<'_>) -> fmt::Result {
    write!(
        f,
        "{list} names {name}, which is no node; add it or correct the name"
    )
}

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

fn number(
    f: &mut fmt::Formatter<'_>,
    node: Short<'_>,
    field: &str,
    value: Quantity,
) -> fmt::Result {
    write!(
        f,
        "{node}: {field} is {value}; wanted is a whole number from 0 to 2^61 - 1"
    )
}

fn sum_of(f: &mut fmt::Formatter<'_>, field: &str, sum: u128, largest: Short<'_>) -> fmt::Result {
    write!(
        f,
        "{field} of all nodes add up to {sum}, more than 2^61 - 1 (the largest is that of {largest}); check the unit"
    )
}

fn computed(
    f: &mut fmt::Formatter<'_>,
    list: &str,
    node: Short<'_>,
    input: Short<'_>,
) -> fmt::Result {
    write!(
        f,
        "{node} is one of the {list} and reads {input}; what is given is not computed"
    )
}

fn two_roles(f: &mut fmt::Formatter<'_>, node: Short<'_>) -> fmt::Result {
    write!(f, "{node} is an input and a tangent; it can be but one")
}

fn tangent_in_forward(
    f: &mut fmt::Formatter<'_>,
    tangent: Short<'_>,
    output: Short<'_>,
) -> fmt::Result {
    write!(
        f,
        "tangent {tangent} feeds forward output {output}; there are no tangents in the forward pass"
    )
}

fn disconnected(f: &mut fmt::Formatter<'_>, node: &str, output: Option<&str>) -> fmt::Result {
    write!(
        f,
        "{} reads nothing, is no input or tangent, and has no op that makes it",
        Short(node)
    )?;
    match output {
        Some(output) if output != node => write!(f, "; output {} hangs on it", Short(output)),
        _ => Ok(()),
    }
}

fn view(f: &mut fmt::Formatter<'_>, node: Short<'_>, base: Short<'_>) -> fmt::Result {
    write!(
        f,
        "{node} is said to be a view of {base}, which it does not read"
    )
}
