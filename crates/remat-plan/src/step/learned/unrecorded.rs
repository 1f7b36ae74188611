//! The ops of a planned step that need no record while the plan is followed.

use super::reads::{Reads, Result};
use remat_core::{Bytes, GuideAction};

/// Results of ops without records take at most this part of the budget at a time, but for those that are constants
/// anyway.
pub const UNRECORDED_PART: u64 = 4;

/// The ops of a step as they are to be chosen from.
struct Choice<'a> {
    reads: &'a Reads,
    /// Of each op the most bytes of a result that is no constant anyway, times the events for which it is there; `None`
    /// for one that the plan acts on.
    weights: Vec<Option<u64>>,
}

/// The ops of a step that need no record: the plan neither runs them again nor drops what they make, nothing with a
/// record reads their results, and those take little at a time. Results that are small and soon gone come first.
pub(super) fn unrecorded(reads: &Reads, actions: &[Vec<GuideAction>], budget: Bytes) -> Vec<u32> {
    let choice = Choice::of(reads, actions);
    let most = budget.0 / UNRECORDED_PART;
    let mut weights: Vec<u64> = choice.weights.iter().copied().flatten().collect();
    weights.sort_unstable();
    weights.dedup();
    // Fewer ops never take more.
    let fit = weights.partition_point(|&weight| choice.most(&choice.up_to(weight)) <= most);
    let Some(at) = fit.checked_sub(1) else {
        return Vec::new();
    };
    let chosen = choice.up_to(weights[at]);
    let places = (0..).zip(&chosen).filter(|(_, &chosen)| chosen);
    places.map(|(place, _)| place).collect()
}

fn evictable(results: &[Option<Result>]) -> impl Iterator<Item = &Result> {
    results.iter().flatten().filter(|result| result.evictable)
}

impl<'a> Choice<'a> {
    fn of(reads: &'a Reads, actions: &[Vec<GuideAction>]) -> Choice<'a> {
        let weights = reads.ops.iter().map(|op| {
            let weights = evictable(&op.results).map(|result| {
                let events = result.until.saturating_sub(op.event) as u64;
                result.bytes.saturating_mul(events)
            });
            op.here.then_some(weights.max().unwrap_or(0))
        });
        let mut weights: Vec<Option<u64>> = weights.collect();
        for action in actions.iter().flatten() {
            let (GuideAction::Run(op) | GuideAction::RunInPlace(op) | GuideAction::Drop { op, .. }) =
                *action;
            if let Some(weight) = weights.get_mut(op as usize) {
                *weight = None;
            }
        }
        Choice { reads, weights }
    }

    /// The ops that may go without a record if their weights are at most that.
    fn up_to(&self, most: u64) -> Vec<bool> {
        let light = |weight: &Option<u64>| weight.is_some_and(|weight| weight <= most);
        let mut chosen: Vec<bool> = self.weights.iter().map(light).collect();
        loop {
            let mut settled = true;
            for (place, op) in self.reads.ops.iter().enumerate().rev() {
                let without = |places: &[u32]| places.iter().all(|&place| chosen[place as usize]);
                let stays = without(&op.readers) && without(&op.writes);
                settled &= stays || !chosen[place];
                chosen[place] &= stays;
            }
            if settled {
                return chosen;
            }
        }
    }

    /// The most bytes of these ops' results at a time that could be evicted if the ops had records. What stays to the
    /// end of the step is there again when the next one begins.
    fn most(&self, chosen: &[bool]) -> u64 {
        let mut changes = vec![(0u64, 0u64); self.reads.events + 1];
        let mut now = 0u64;
        let ops = self.reads.ops.iter().zip(chosen);
        for (op, _) in ops.filter(|(_, &chosen)| chosen) {
            for result in evictable(&op.results) {
                changes[op.event].0 += result.bytes;
                changes[result.until].1 += result.bytes;
                if result.until == self.reads.events {
                    now += result.bytes;
                }
            }
        }
        let mut most = now;
        for (more, less) in changes {
            now = now.saturating_add(more).saturating_sub(less);
            most = most.max(now);
        }
        most
    }
}
