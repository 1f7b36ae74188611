//! The verifier of plans of steps. It shares nothing with the planner but the events and the plan's file.

use super::fault::{Fault, Verified};
use super::recording::Recording;
use super::walk::Walk;
use crate::step::plan::step_plan::{PLAN_VERSION, StepPlan};
use remat_trace::Event;

/// Performs a plan on paper, and compares what it takes with its claims. Memory is that of device 0.
///
/// - Each op runs for the first time in program order, and again only if the recording allows it.
/// - A run needs each of its inputs: the storage in memory, and a view made since the storage came there.
/// - A run takes all storages that its op makes, those that are in memory a second time while it runs, beside its
///   workspace. What an op writes in place takes the block of the old value in the first run, which is gone then, and
///   in runs again where the plan says so; else a block of its own.
/// - A pinned storage stays as long as the recording refers to it, a tensor read outside ops is there at that place of
///   the program, and one that is still referred to is there at the end.
/// - If the plan has addresses, no two blocks in use overlap, and none ends beyond the arena.
///
/// Takes time linear in the events, and in the inputs and outputs of all runs.
///
/// ```
/// use remat_plan::step::{verify, StepPlan};
/// use remat_trace::{Event, TraceOutput, TraceOutputKind};
///
/// let events = [
///     Event::Constant { tensor: 0, bytes: 100, device: 0 },
///     Event::Op {
///         name: "exp".into(),
///         inputs: vec![0],
///         outputs: vec![TraceOutput { tensor: 1, kind: TraceOutputKind::Fresh { bytes: 100, device: 0 } }],
///         workspace: 50, workspace_device: 0, cost: 7, replay: true,
///     },
/// ];
/// let mut plan: StepPlan = serde_json::from_str(
///     r#"{"remat-step-plan": 1, "budget_bytes": 300, "peak_bytes": 250, "cost_ns": 7, "recompute_ns": 0,
///     "bound_ns": 7, "seed": 0, "iterations": 0, "ops": 2, "storages": 2, "steps": [["run", 0], ["run", 1]]}"#,
/// )?;
/// assert_eq!(verify(&events, &plan)?.peak_bytes, 250);
/// plan.steps.swap(0, 1);
/// let fault = verify(&events, &plan).unwrap_err().to_string();
/// assert_eq!(fault, r#"step 0 (["run", 1]): op 0 must run first; first runs are in program order"#);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The first [`Fault`] found.
pub fn verify<'a>(
    events: impl IntoIterator<Item = &'a Event>,
    plan: &StepPlan,
) -> Result<Verified, Fault> {
    if plan.version != PLAN_VERSION {
        return Err(Fault::Version(plan.version));
    }
    let recording = Recording::of(events)?;
    let (ops, storages) = (recording.ops.len(), recording.storages.len());
    same("ops", plan.ops, ops as u128)?;
    same("storages", plan.storages, storages as u128)?;
    let addresses = plan.addresses.as_ref();
    if let Some(addresses) = addresses.filter(|addresses| !addresses.alignment.is_power_of_two()) {
        return Err(Fault::Alignment(addresses.alignment));
    }
    let mut walk = Walk::new(&recording, addresses);
    for (step, &action) in plan.steps.iter().enumerate() {
        let taken = walk.perform(action);
        taken.map_err(|reason| Fault::Step {
            step,
            action,
            reason,
        })?;
    }
    walk.end().map_err(Fault::End)?;
    let costs = recording.ops.iter().map(|op| u128::from(op.cost));
    agree(plan, costs.sum(), &walk)
}

/// Compares the plan's claims with what it takes.
fn agree(plan: &StepPlan, cost: u128, walk: &Walk<'_>) -> Result<Verified, Fault> {
    let verified = Verified {
        peak_bytes: same("peak_bytes", plan.peak_bytes, walk.peak)?,
        cost_ns: same("cost_ns", plan.cost_ns, cost)?,
        recompute_ns: same("recompute_ns", plan.recompute_ns, walk.again_ns)?,
        ops: walk.ran as u64,
        reruns: walk.reruns,
        frees: walk.frees,
    };
    if verified.peak_bytes > plan.budget_bytes {
        return Err(Fault::AboveBudget {
            peak: verified.peak_bytes,
            budget: plan.budget_bytes,
        });
    }
    let total = cost + walk.again_ns;
    if u128::from(plan.bound_ns) > total {
        return Err(Fault::BoundAbovePlan {
            bound: plan.bound_ns,
            total,
        });
    }
    Ok(verified)
}

fn same(field: &'static str, said: u64, found: u128) -> Result<u64, Fault> {
    if u128::from(said) == found {
        Ok(said)
    } else {
        Err(Fault::Claim { field, said, found })
    }
}
