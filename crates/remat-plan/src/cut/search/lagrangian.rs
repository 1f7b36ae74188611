//! The Lagrangian relaxation of the budget's constraint at one moment of the backward pass: memory at a price.
//!
//! At a moment some bytes are there whatever is saved, and the saved values that are read later are there besides.
//! With a price for each byte of the latter, and the time of each banned op on the edge from the source (algorithm 1
//! with finite bans), a minimum cut is the cheapest choice. `snapshot_cut.rs` derives bounds from such prices.

use crate::cut::error::CutError;
use crate::cut::evaluate::choice::Problem;
use crate::cut::graph::ban_rules::Nearest;
use crate::cut::search::auxiliary_graph::{AuxiliaryGraph, Weights};
use crate::flow::network::Capacity;

/// The sum to which the numbers of a network are scaled, so that rounding them down loses little.
pub(crate) const SUM: f64 = (1u64 << 52) as f64;

/// The values that the cheapest choice saves where a byte at this moment costs so many nanoseconds. Nodes in `keep`
/// are not recomputed. A 64th of the capacities counts too, and decides between choices that are alike otherwise.
pub(crate) fn priced(
    problem: &Problem<'_>,
    held: &[u64],
    price: f64,
    keep: Option<&[bool]>,
) -> Result<Vec<bool>, CutError> {
    let save = |id: usize| match problem.capacities[id] {
        Capacity::Finite(capacity) => price * (held[id] as f64 + capacity as f64 / 64.0),
        Capacity::Infinite => 0.0,
    };
    let recompute: Vec<u64> = (0..problem.graph.len())
        .map(|id| certain_ns(problem, id))
        .collect();
    let whole: f64 = (0..problem.graph.len())
        .map(|id| save(id) + recompute[id] as f64)
        .sum();
    let scale = SUM / whole.max(f64::MIN_POSITIVE);
    let finite = |value: f64| Capacity::Finite((value * scale) as u64);
    let split = AuxiliaryGraph::new(problem, |id| Weights {
        save: match problem.capacities[id] {
            Capacity::Finite(_) => finite(save(id)),
            Capacity::Infinite => Capacity::Infinite,
        },
        recompute: if problem.fixed[id] || keep.is_some_and(|keep| keep[id]) {
            Capacity::Infinite
        } else {
            finite(recompute[id] as f64)
        },
    });
    Ok(split.saved(Nearest::Backward)?.0)
}

/// Nanoseconds that recomputing a node certainly takes, whatever else is saved: the forward pass runs it in any case,
/// and some of its readers in the backward pass do not fuse with it.
pub(crate) fn certain_ns(problem: &Problem<'_>, id: usize) -> u64 {
    let (graph, node) = (problem.graph, &problem.graph.nodes[id]);
    let apart =
        |&user: &u32| problem.phases.backward[user as usize] && !graph.nodes[user as usize].fusible;
    let alone = !node.fusible || node.compute_bound || graph.users.of(id).iter().any(apart);
    if problem.always_forward[id] && alone && !node.input {
        node.cost
    } else {
        0
    }
}
