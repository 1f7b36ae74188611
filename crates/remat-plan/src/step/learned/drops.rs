//! Drops that a plan can do without: what the program lets go of soon may stay so long where there is room.

use super::events::Translated;
use super::places::Order;
use super::reads::Reads;
use crate::step::placement::blocks;
use crate::step::plan::step_plan::StepPlan;
use remat_core::{Bytes, GuideAction};
use std::collections::HashSet;

/// A drop stays if the program refers to the storage for more ops than that.
const SOON: usize = 64;

/// Takes the drops out of a plan's actions that change nothing, and those of storages that no run makes again and that
/// the program lets go of soon, as far as the plan's peak stays. Drops of results that the plan keeps stay; these rise.
///
/// Where a plan runs nothing again, it drops what is not read any more in the step. These drops go too, as far as the
/// budget has room to the end of the step: it may be read after that.
pub(super) fn leave_out_drops(
    plan: &StepPlan,
    translated: &Translated,
    order: &Order,
    reads: &Reads,
    kept: &[(u32, u32)],
    budget: Bytes,
    actions: &mut [Vec<GuideAction>],
) {
    let mut memory = memory(plan, translated);
    let again: HashSet<u32> = actions
        .iter()
        .flatten()
        .filter_map(|action| match *action {
            GuideAction::Run(op) | GuideAction::RunInPlace(op) => Some(op),
            GuideAction::Drop { .. } => None,
        })
        .collect();
    let is_idle = again.is_empty();
    let most = if is_idle { budget.0 } else { plan.peak_bytes };
    let mut steps = order.actions.iter();
    for (place, before) in actions.iter_mut().enumerate() {
        before.retain(|action| {
            let step = steps.next().copied();
            let (GuideAction::Drop { op, output }, Some(step)) = (*action, step) else {
                return true;
            };
            let Some(result) = reads.result(op, output).filter(|_| !again.contains(&op)) else {
                return true;
            };
            if kept.binary_search(&(op, output)).is_ok() {
                return true;
            }
            // What must stay is not dropped, and what is let go of is gone.
            if !result.evictable || result.until < reads.ops[place].event {
                return false;
            }
            let runs = reads.ops[place..].partition_point(|op| op.event < result.until);
            let goes = result.until < reads.events && !result.pinned;
            if !is_idle && (runs > SOON || !goes) {
                return true;
            }
            let last = order.runs[place + runs - 1];
            let span = &mut memory[step..=last];
            let fits = |bytes: &u64| bytes.saturating_add(result.bytes) <= most;
            if !span.iter().all(fits) {
                return true;
            }
            span.iter_mut().for_each(|bytes| *bytes += result.bytes);
            false
        });
    }
}

/// The bytes in memory at each of a plan's steps.
fn memory(plan: &StepPlan, translated: &Translated) -> Vec<u64> {
    let steps = plan.steps.len();
    let mut changes = vec![0i128; steps + 1];
    for block in blocks(&translated.events, &plan.steps, 0).blocks {
        changes[block.start as usize] += i128::from(block.bytes);
        changes[block.end as usize] -= i128::from(block.bytes);
    }
    let mut now = 0i128;
    let at = changes[..steps].iter().map(|change| {
        now += change;
        u64::try_from(now).unwrap_or(u64::MAX)
    });
    at.collect()
}
