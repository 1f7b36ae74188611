//! Memory at a price: of a budget's constraint at one moment of the backward pass, the Lagrangian relaxation is a minimum cut.
//!
//! At a moment some bytes are there whatever is saved, and so are those of saved values that are read later. With a price for each of
//! the latter and the time of each banned op on the edge from the source (algorithm 1 with finite bans), a minimum cut is the
//! cheapest choice. What such prices prove is in `relaxation.rs`.

use crate::cut::error::CutError;
use crate::cut::evaluate::choice::Question;
use crate::cut::flow::network::Capacity;
use crate::cut::graph::ban_rules::Nearest;
use crate::cut::search::partition::{Split, Weights};

/// What is there at a moment of the backward pass.
pub(crate) struct Moment {
    /// Bytes that are there whatever is saved.
    pub(crate) fixed: u64,
    /// Bytes that are there besides if a node is saved; at most these, where nodes share memory.
    pub(crate) held: Vec<u64>,
    /// Whether what is in the memory of each node is there whatever is saved.
    pub(crate) there: Vec<bool>,
    /// What the backward pass needs of the forward pass from then on, beside what it recomputes others from.
    pub(crate) needed: Vec<bool>,
}

/// Numbers of a network add up to about so much, so that rounding them down loses little.
pub(crate) const SUM: f64 = (1u64 << 52) as f64;

/// What is saved by the choice that is cheapest where a byte at this moment costs so many nanoseconds. Nodes in `keep` are not recomputed; a
/// 64th of the capacities is counted too, for choices that are alike otherwise.
pub(crate) fn priced(
    question: &Question<'_>,
    held: &[u64],
    price: f64,
    keep: Option<&[bool]>,
) -> Result<Vec<bool>, CutError> {
    let save = |id: usize| match question.capacities[id] {
        Capacity::Finite(capacity) => price * (held[id] as f64 + capacity as f64 / 64.0),
        Capacity::Infinite => 0.0,
    };
    let recompute: Vec<u64> = (0..question.graph.len())
        .map(|id| certain_ns(question, id))
        .collect();
    let whole: f64 = (0..question.graph.len())
        .map(|id| save(id) + recompute[id] as f64)
        .sum();
    let scale = SUM / whole.max(f64::MIN_POSITIVE);
    let finite = |value: f64| Capacity::Finite((value * scale) as u64);
    let split = Split::new(question, |id| Weights {
        save: match question.capacities[id] {
            Capacity::Finite(_) => finite(save(id)),
            Capacity::Infinite => Capacity::Infinite,
        },
        recompute: match question.fixed[id] || keep.is_some_and(|keep| keep[id]) {
            true => Capacity::Infinite,
            false => finite(recompute[id] as f64),
        },
    });
    Ok(split.saved(Nearest::Backward)?.0)
}

/// Nanoseconds that recomputing a node takes for certain, whatever else is: the forward pass runs it in any case, and some of what
/// reads it in the backward pass does not fuse with it.
pub(crate) fn certain_ns(question: &Question<'_>, id: usize) -> u64 {
    let (graph, node) = (question.graph, &question.graph.nodes[id]);
    let apart = |&user: &u32| {
        question.phases.backward[user as usize] && !graph.nodes[user as usize].fusible
    };
    let alone = !node.fusible || node.compute_bound || graph.users.of(id).iter().any(apart);
    match question.always_forward[id] && alone && !node.input {
        true => node.cost,
        false => 0,
    }
}
