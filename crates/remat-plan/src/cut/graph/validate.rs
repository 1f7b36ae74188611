//! Validation: from a description to a joint graph that is sound.

use crate::adjacency::Adjacency;
use crate::cut::error::GraphError;
use crate::cut::graph::ban_rules::below_a_quarter;
use crate::cut::graph::description::{
    Description, MOST_SHARED_READS, Node, Quantity, SHARED_READS,
};
use crate::cut::graph::fusion_bans::{Facts, fusion_bans};
use crate::cut::graph::joint_graph::{JointGraph, Properties};
use crate::cut::graph::topology;
use std::collections::HashMap;

/// The most nodes and inputs of nodes together, so that ids of vertices and arcs fit in 32 bits.
const MOST: usize = 1 << 28;
/// Upper limit of the sums of bytes, of costs, and of workspaces: capacities are twice the bytes, and infinity is 2^62.
const MOST_SUM: u128 = 1 << 61;

impl JointGraph {
    /// Validates a description. Takes time `O(size log nodes)`, and up to `O(nodes * size)` where fusion rules are on.
    pub fn new(description: Description) -> Result<JointGraph, GraphError> {
        let size = |node: &Node| 1 + node.inputs.len();
        let found: usize = description.nodes.iter().map(size).sum();
        if found > MOST {
            return Err(GraphError::TooMany { found, most: MOST });
        }
        match description.shared_reads {
            Some(found) if found > MOST_SHARED_READS => {
                let most = MOST_SHARED_READS;
                return Err(GraphError::SharedReads { found, most });
            }
            _ => {}
        }
        let ids = ids(&description.nodes)?;
        let (nodes, inputs) = properties(&description, &ids)?;
        let rules = description.fusion_rules;
        let facts = rules.are_on().then(|| facts(&description));
        let (mut graph, order) = arranged(description, nodes, &inputs)?;
        connected(&graph)?;
        if let Some(facts) = facts {
            let facts: Vec<Facts> = order.iter().map(|&old| facts[old as usize]).collect();
            let bans = fusion_bans(&graph, rules, &facts);
            for (node, ban) in graph.nodes.iter_mut().zip(bans) {
                node.fusion_ban = ban;
                node.compute_bound |= ban.is_some();
            }
        }
        Ok(graph)
    }
}

impl std::str::FromStr for JointGraph {
    type Err = GraphError;

    /// Reads GRAPH.json.
    fn from_str(json: &str) -> Result<JointGraph, GraphError> {
        let description =
            serde_json::from_str(json).map_err(|error| GraphError::Json(error.to_string()))?;
        JointGraph::new(description)
    }
}

/// The facts about each node that fusion rules read, in the order of the description.
fn facts(description: &Description) -> Vec<Facts> {
    let facts = |(position, node): (u32, &Node)| Facts {
        position,
        forward: node.forward,
        free: node.free,
        fuses_as_reader: node.fuses_as_reader,
    };
    (0..).zip(&description.nodes).map(facts).collect()
}

/// Numbers of the names.
type Ids<'a> = HashMap<&'a str, u32>;

fn ids(nodes: &[Node]) -> Result<Ids<'_>, GraphError> {
    let mut ids = HashMap::with_capacity(nodes.len());
    for (id, node) in (0..).zip(nodes) {
        if ids.insert(node.name.as_str(), id).is_some() {
            return Err(GraphError::Duplicate {
                name: node.name.clone(),
            });
        }
    }
    Ok(ids)
}

/// Pairs of an input and its reader.
type Pairs = Vec<(u32, u32)>;

/// The properties of each node, and pairs of inputs and readers, in the order of the description.
fn properties(
    description: &Description,
    ids: &Ids<'_>,
) -> Result<(Vec<Properties>, Pairs), GraphError> {
    let mut pairs = Vec::new();
    let mut nodes = Vec::with_capacity(description.nodes.len());
    for (id, node) in (0..).zip(&description.nodes) {
        let inputs = inputs(node, ids)?;
        nodes.push(property(node, &inputs, description, ids)?);
        pairs.extend(inputs.into_iter().map(|input| (input, id)));
    }
    roles(description, ids, &mut nodes)?;
    for field in ["bytes", "cost", "workspace"] {
        adds_up(description, &nodes, field)?;
    }
    Ok((nodes, pairs))
}

/// The inputs of a node, each once.
fn inputs(node: &Node, ids: &Ids<'_>) -> Result<Vec<u32>, GraphError> {
    let mut inputs = Vec::with_capacity(node.inputs.len());
    for input in &node.inputs {
        inputs.push(id_of(node, input, ids)?);
    }
    if inputs.len() > 1 {
        let mut sorted = inputs.clone();
        sorted.sort_unstable();
        sorted.dedup();
        inputs = sorted;
    }
    Ok(inputs)
}

fn id_of(node: &Node, input: &str, ids: &Ids<'_>) -> Result<u32, GraphError> {
    let unknown = || GraphError::UnknownInput {
        node: node.name.clone(),
        input: input.into(),
    };
    ids.get(input).copied().ok_or_else(unknown)
}

fn property(
    node: &Node,
    inputs: &[u32],
    description: &Description,
    ids: &Ids<'_>,
) -> Result<Properties, GraphError> {
    let view_of = match &node.view_of {
        None => None,
        Some(base) => Some(view(node, base, inputs, ids)?),
    };
    let part_of = match (node.op.as_str(), inputs) {
        ("getitem", &[op]) if !description.nodes[op as usize].savable => Some(op),
        _ => None,
    };
    Ok(Properties {
        bytes: number(node, "bytes", node.bytes)?,
        cost: number(node, "cost", node.cost)?,
        fusible: node.fusible,
        compute_bound: node.compute_bound,
        random: node.random,
        reduction: shrinks(node)? && node.reduction,
        savable: node.savable,
        recomputable: node.recomputable,
        fusion_ban: None,
        written: node.written,
        heavy: node.heavy,
        workspace: number(node, "workspace", node.workspace)?,
        input: false,
        tangent: false,
        forward_output: false,
        backward_output: false,
        view_of,
        part_of,
        group: node.group,
        made: !node.op.is_empty() && node.op != "placeholder",
    })
}

/// The op makes less than a quarter of the bytes that it reads, as far as the description names them.
fn shrinks(node: &Node) -> Result<bool, GraphError> {
    let known =
        |field, value: Option<Quantity>| value.map(|value| number(node, field, value)).transpose();
    let made = known("result_bytes", node.result_bytes)?;
    let read = known("operand_bytes", node.operand_bytes)?;
    Ok(match (made, read) {
        (Some(made), Some(read)) => below_a_quarter(made, read),
        _ => true,
    })
}

fn view(node: &Node, base: &str, inputs: &[u32], ids: &Ids<'_>) -> Result<u32, GraphError> {
    let id = id_of(node, base, ids)?;
    if inputs.contains(&id) {
        return Ok(id);
    }
    Err(GraphError::View {
        node: node.name.clone(),
        base: base.into(),
    })
}

fn number(node: &Node, field: &'static str, value: Quantity) -> Result<u64, GraphError> {
    match value {
        Quantity::Whole(whole) if u128::from(whole) < MOST_SUM => Ok(whole),
        Quantity::Other(value) if value.fract() == 0.0 && (0.0..9e15).contains(&value) => {
            Ok(value as u64)
        }
        _ => Err(GraphError::Number {
            node: node.name.clone(),
            field,
            value,
        }),
    }
}

/// Checks that the sum of the bytes, costs or workspaces of all nodes fits.
fn adds_up(
    description: &Description,
    nodes: &[Properties],
    field: &'static str,
) -> Result<(), GraphError> {
    let value = |node: &Properties| match field {
        "bytes" => node.bytes,
        "cost" => node.cost,
        _ => node.workspace,
    };
    let sum: u128 = nodes.iter().map(|node| u128::from(value(node))).sum();
    let largest = (0..nodes.len()).max_by_key(|&id| value(&nodes[id]));
    match largest {
        Some(largest) if sum >= MOST_SUM => Err(GraphError::Sum {
            field,
            sum,
            largest: description.nodes[largest].name.clone(),
        }),
        _ => Ok(()),
    }
}

/// Marks inputs, tangents and outputs.
fn roles(
    description: &Description,
    ids: &Ids<'_>,
    nodes: &mut [Properties],
) -> Result<(), GraphError> {
    type Set = fn(&mut Properties);
    let lists: [(&'static str, &[String], Set); 4] = [
        ("inputs", &description.inputs, |node| node.input = true),
        ("tangents", &description.tangents, |node| {
            node.tangent = true
        }),
        ("forward_outputs", &description.forward_outputs, |node| {
            node.forward_output = true
        }),
        ("backward_outputs", &description.backward_outputs, |node| {
            node.backward_output = true
        }),
    ];
    for (list, names, set) in lists {
        for name in names {
            let unknown = || GraphError::UnknownListed {
                list,
                name: name.clone(),
            };
            set(&mut nodes[*ids.get(name.as_str()).ok_or_else(unknown)? as usize]);
        }
    }
    for (node, properties) in description.nodes.iter().zip(nodes.iter()) {
        given(node, properties)?;
    }
    for id in 0..nodes.len() {
        // A tuple that is given was made with its results before the step began: what is taken from it is an op.
        let made = |&op: &u32| !nodes[op as usize].input && !nodes[op as usize].tangent;
        nodes[id].part_of = nodes[id].part_of.filter(made);
    }
    Ok(())
}

/// Checks that a node that is given has one role and is not computed.
fn given(node: &Node, properties: &Properties) -> Result<(), GraphError> {
    let list = match (properties.input, properties.tangent) {
        (true, true) => {
            return Err(GraphError::TwoRoles {
                node: node.name.clone(),
            });
        }
        (true, false) => "inputs",
        (false, true) => "tangents",
        (false, false) => return Ok(()),
    };
    match node.inputs.first() {
        Some(input) => Err(GraphError::Computed {
            list,
            node: node.name.clone(),
            input: input.clone(),
        }),
        None => Ok(()),
    }
}

/// The graph with its nodes in an order in which they can run, and that order.
fn arranged(
    description: Description,
    nodes: Vec<Properties>,
    pairs: &[(u32, u32)],
) -> Result<(JointGraph, Vec<u32>), GraphError> {
    let (inputs, users) = adjacencies(nodes.len(), pairs);
    let part_of: Vec<Option<u32>> = nodes.iter().map(|node| node.part_of).collect();
    let order = topology::order(&inputs, &users, &part_of).map_err(|circle| {
        let name = |&id: &u32| description.nodes[id as usize].name.clone();
        GraphError::Cycle {
            names: circle.iter().map(name).collect(),
        }
    })?;
    let mut place = vec![0u32; nodes.len()];
    for (new, &old) in (0..).zip(&order) {
        place[old as usize] = new;
    }
    let placed = |old: u32| place[old as usize];
    let mut pairs: Vec<(u32, u32)> = pairs
        .iter()
        .map(|&(input, user)| (placed(input), placed(user)))
        .collect();
    pairs.sort_unstable();
    let mut names: Vec<String> = description
        .nodes
        .into_iter()
        .map(|node| node.name)
        .collect();
    let arranged = |&old: &u32| Properties {
        view_of: nodes[old as usize].view_of.map(placed),
        part_of: nodes[old as usize].part_of.map(placed),
        ..nodes[old as usize].clone()
    };
    let name = |&old: &u32| std::mem::take(&mut names[old as usize]);
    let names = order.iter().map(name).collect();
    let nodes = order.iter().map(arranged).collect();
    let shared_reads = description.shared_reads.unwrap_or(SHARED_READS) as usize;
    Ok((assembled(names, nodes, &pairs, shared_reads), order))
}

/// A graph of nodes in an order in which they can run; pairs are of an input and its reader.
pub(crate) fn assembled(
    names: Vec<String>,
    nodes: Vec<Properties>,
    pairs: &[(u32, u32)],
    shared_reads: usize,
) -> JointGraph {
    let (inputs, users) = adjacencies(nodes.len(), pairs);
    JointGraph {
        names,
        nodes,
        inputs,
        users,
        shared_reads,
    }
}

/// The inputs and the readers of each node.
fn adjacencies(count: usize, pairs: &[(u32, u32)]) -> (Adjacency, Adjacency) {
    let users = Adjacency::new(count, pairs.iter().copied());
    let inputs = Adjacency::new(count, pairs.iter().map(|&(input, user)| (user, input)));
    (inputs, users)
}

/// Checks that no forward output is computed from a tangent, and that every node reads something, is given, or has an
/// op.
fn connected(graph: &JointGraph) -> Result<(), GraphError> {
    // A tangent, and a node made by nothing, that each node is computed from.
    let mut tangent: Vec<Option<usize>> = vec![None; graph.len()];
    let mut nothing: Vec<Option<usize>> = vec![None; graph.len()];
    let mut first = None;
    for (id, node) in graph.nodes.iter().enumerate() {
        let reads = graph.inputs.of(id);
        let inherited = |of: &[Option<usize>]| reads.iter().find_map(|&read| of[read as usize]);
        tangent[id] = node.tangent.then_some(id).or_else(|| inherited(&tangent));
        nothing[id] = inherited(&nothing);
        if reads.is_empty() && !node.input && !node.tangent && !node.made {
            nothing[id] = Some(id);
            first = first.or(Some((id, None)));
        }
        if let (true, Some(from)) = (node.forward_output, tangent[id]) {
            return Err(GraphError::TangentInForward {
                tangent: graph.names[from].clone(),
                output: graph.names[id].clone(),
            });
        }
        if let (true, Some(from)) = (node.forward_output || node.backward_output, nothing[id]) {
            first = Some((from, Some(id)));
        }
    }
    match first {
        None => Ok(()),
        Some((node, output)) => Err(GraphError::Disconnected {
            node: graph.names[node].clone(),
            output: output.map(|output| graph.names[output].clone()),
        }),
    }
}
