//! The verifier: it recomputes the cost, time and memory of a plan from the words of the paper and of `evaluate/`,
//! and shares nothing with the planner but the graph and its JSON.

use crate::cut::graph::joint_graph::JointGraph;
use crate::cut::verify::check::Check;
use crate::cut::verify::claim::{Claim, Fault, Verified, fault};
use crate::cut::verify::replay::peak;

/// Recomputes cost, time and memory of a plan, and compares them with its claims. Takes time `O(size log size)`.
///
/// A plan is not valid if it saves a node that cannot be handed on, leaves the backward pass without a value, or
/// recomputes a banned node without saying that the ban is lifted. Bans of random ops are never lifted.
pub fn verify(graph: &JointGraph, claim: &Claim) -> Result<Verified, Fault> {
    let check = Check::new(graph, claim)?;
    check.bans()?;
    let verified = measured(&check);
    agree(claim, &verified)?;
    Ok(verified)
}

fn agree(claim: &Claim, verified: &Verified) -> Result<(), Fault> {
    let numbers = [
        ("cost", claim.cost, verified.cost),
        ("saved_bytes", claim.saved_bytes, verified.saved_bytes),
        ("peak_bytes", claim.peak_bytes, verified.peak_bytes),
        ("recompute_ns", claim.recompute_ns, verified.recompute_ns),
    ];
    for (field, said, found) in numbers {
        match said {
            Some(said) if said != found => {
                return fault(format!("it says {field} {said}, found is {found}"));
            }
            _ => {}
        }
    }
    if let Some(said) = &claim.recomputed {
        let sorted = |names: &[String]| {
            let mut names = names.to_vec();
            names.sort();
            names
        };
        if sorted(said) != sorted(&verified.recomputed) {
            return fault(
                "what it says is recomputed is not what follows from what is saved".into(),
            );
        }
    }
    match claim.budget_bytes {
        Some(budget) if verified.peak_bytes > budget => fault(format!(
            "its peak of {} bytes is above its budget of {budget}",
            verified.peak_bytes
        )),
        _ => Ok(()),
    }
}

/// Cost, time and memory of a valid plan.
fn measured(check: &Check<'_>) -> Verified {
    let early = check.early();
    let saved = (0..check.graph.len()).filter(|&id| check.saved[id]);
    let again = (0..check.graph.len()).filter(|&id| check.again(id));
    Verified {
        cost: saved.clone().map(|id| check.capacity(id)).sum(),
        saved_bytes: saved.map(|id| check.graph.nodes[id].bytes).sum(),
        recomputed: again
            .clone()
            .map(|id| check.graph.names[id].clone())
            .collect(),
        recompute_ns: again
            .filter(|&id| early[id] && !check.free(id))
            .map(|id| check.graph.nodes[id].cost)
            .sum(),
        peak_bytes: peak(check, &early),
    }
}
