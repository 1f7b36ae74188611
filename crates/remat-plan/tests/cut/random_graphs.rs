//! Random joint graphs, small enough for everything to be tried.

use proptest::prelude::*;
use remat_plan::cut::{Description, Node, Quantity};

/// A drawn node: the nodes before it that it reads, its bytes, its flags, its cost.
type Draw = (u32, u64, [bool; 8], u64);

/// Joint graphs of so many nodes at most before and after the tangent.
pub(crate) fn joint_graphs(forward: usize, backward: usize) -> impl Strategy<Value = Description> {
    let flags = [0.7, 0.15, 0.1, 0.2, 0.07, 0.07, 0.3, 0.3].map(prop::bool::weighted);
    let node = (any::<u32>(), 0u64..7, flags, 0u64..20);
    let forward = prop::collection::vec(node.clone(), 1..=forward);
    let backward = prop::collection::vec(node, 1..=backward);
    (1usize..3, forward, backward).prop_map(|(inputs, forward, backward)| {
        let inputs = inputs.min(forward.len());
        drawn(inputs, &forward, &backward)
    })
}

fn drawn(inputs: usize, forward: &[Draw], backward: &[Draw]) -> Description {
    let mut graph = Description::default();
    for (id, draw) in forward.iter().enumerate() {
        if id < inputs {
            graph.inputs.push(format!("n{id}"));
        }
        let reads = read(draw, id, if id < inputs { 0 } else { id });
        push(&mut graph, draw, reads, id >= inputs);
        let [.., forward_output, backward_output] = draw.2;
        let name = format!("n{id}");
        if forward_output {
            graph.forward_outputs.push(name.clone());
        }
        if backward_output && draw.0 % 4 == 0 {
            graph.backward_outputs.push(name);
        }
    }
    let tangent = forward.len();
    graph.tangents.push(format!("n{tangent}"));
    graph.nodes.push(Node::new(&format!("n{tangent}"), 3, &[]));
    for (k, draw) in backward.iter().enumerate() {
        let id = tangent + 1 + k;
        let mut reads = read(draw, id, id);
        // Something from a tangent is read, or this would be one more forward op.
        reads.push(id - 1 - (draw.0 >> 20) as usize % (k + 1));
        push(&mut graph, draw, reads, true);
        if draw.2[7] || k + 1 == backward.len() {
            graph.backward_outputs.push(format!("n{id}"));
        }
    }
    graph
}

/// Up to three of the last eight before `bound`.
fn read(draw: &Draw, id: usize, bound: usize) -> Vec<usize> {
    let window = bound.min(8);
    let pick = |shift: u32| id - 1 - (draw.0 >> shift) as usize % window.max(1);
    match window {
        0 => Vec::new(),
        _ => [0, 4, 8][..1 + (draw.0 >> 12) as usize % 3]
            .iter()
            .map(|&shift| pick(shift))
            .collect(),
    }
}

fn push(graph: &mut Description, draw: &Draw, reads: Vec<usize>, computed: bool) {
    let (_, bytes, flags, cost) = *draw;
    let [fusible, compute_bound, random, reduction, bound, fixed, ..] = flags;
    let id = graph.nodes.len();
    let view_of = (computed && draw.0 >> 24 & 7 == 0).then(|| format!("n{}", reads[0]));
    let alone = reads.iter().all(|read| *read == reads[0]);
    let result = alone && view_of.is_none() && draw.0 >> 27 & 1 == 0;
    let inputs: Vec<String> = reads.iter().map(|read| format!("n{read}")).collect();
    let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
    graph.nodes.push(Node {
        op: if result { "getitem" } else { "op" }.into(),
        view_of,
        fusible,
        compute_bound,
        random,
        reduction,
        cost: Quantity::Whole(cost),
        savable: !bound,
        recomputable: !fixed,
        written: match draw.0 >> 28 {
            0 => Some(true),
            1 => Some(false),
            _ => None,
        },
        heavy: draw.0 >> 20 & 3 == 0,
        workspace: Quantity::Whole(u64::from(draw.0 >> 17 & 7).saturating_sub(3)),
        ..Node::new(&format!("n{id}"), bytes, &inputs)
    });
}
