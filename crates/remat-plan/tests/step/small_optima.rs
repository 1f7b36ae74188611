//! Plans of small steps, compared with the best of all.
//!
//! Two references: the best of all sets of runs, which is the planner's own form, and the best of all orders whose
//! first runs are in program order, which may run an op twice at one place or in another order. The budgets are those
//! at which the first changes, and a byte below its smallest.

use crate::numbered::Numbered;
use crate::random_steps::{RECORDED, Trait, check, steps};
use crate::recordings::claimed;
use crate::sets_of_runs::Frontier;
use crate::shortest_path::best_order;
use proptest::prelude::*;
use remat_core::Bytes;
use remat_plan::step::{Planner, Search, Step, StepError, StepPlan, verify};
use remat_trace::Event;
use std::cell::RefCell;
use std::ops::ControlFlow;

/// The most sets of runs of a step that is looked at.
const MOST_SETS: usize = 1 << 12;

fn planned(events: &[Event], budget: u64) -> Option<StepPlan> {
    let step = Step::from_events(events).expect("events that follow one another");
    let search = Search {
        iterations: Some(60),
        ..Search::default()
    };
    let watch = &mut |_: &_| ControlFlow::Continue(());
    match Planner::new(&step).plan(Bytes(budget), &search, watch) {
        Ok(plan) => Some(plan),
        Err(StepError::Budget { .. } | StepError::Overwritten) => None,
        Err(error) => panic!("{error}"),
    }
}

/// How plans compare with the references.
#[derive(Debug, Default)]
struct Tally {
    /// Budgets with a schedule of the planner's form.
    feasible: u32,
    /// Of these, those that were refused.
    refused: u32,
    /// Of these, those whose plan is the best order of all.
    best: u32,
    /// Budgets with an order, and no schedule of the planner's form.
    orders_only: u32,
    /// The most that a plan takes, as a part of the best order's time.
    ratio: f64,
}

/// Compares the plans of random steps with both references.
fn compared(traits: &'static [Trait]) -> Tally {
    let tally = RefCell::new(Tally::default());
    check(400, &steps(4..=8, traits), |events| {
        let step = Numbered::of(&events);
        let few = step.storages.len() <= 9 && step.tensors.len() <= 14;
        let Some(frontier) = few.then(|| Frontier::of(&events, MOST_SETS)).flatten() else {
            return Ok(());
        };
        let budgets = frontier.0.iter().map(|&(peak, _)| peak);
        // A step may read what can be made no more, and have no schedule at all.
        let smallest = budgets.clone().min().unwrap_or(u64::MAX);
        for budget in budgets.chain(smallest.checked_sub(1)) {
            compare(&events, &step, &frontier, budget, &mut tally.borrow_mut())?;
        }
        Ok(())
    });
    tally.into_inner()
}

fn compare(
    events: &[Event],
    step: &Numbered,
    frontier: &Frontier,
    budget: u64,
    tally: &mut Tally,
) -> Result<(), TestCaseError> {
    let own = frontier.within(budget);
    let order = best_order(step, budget);
    let best = order.as_ref().map(|order| order.recompute_ns);
    if let Some(order) = order {
        let (_, verified) = claimed(events, order.actions).expect("a valid order");
        prop_assert!(verified.peak_bytes <= budget);
        prop_assert_eq!(Some(verified.recompute_ns), best);
    }
    prop_assert!(own.is_none_or(|own| best.is_some_and(|best| best <= own)));
    let plan = planned(events, budget);
    tally.feasible += u32::from(own.is_some());
    tally.refused += u32::from(own.is_some() && plan.is_none());
    tally.orders_only += u32::from(own.is_none() && best.is_some());
    let Some(plan) = plan else { return Ok(()) };
    prop_assert!(verify(events, &plan).is_ok());
    let (Some(own), Some(best)) = (own, best) else {
        return Err(TestCaseError::fail("a plan where nothing fits"));
    };
    prop_assert!(plan.bound_ns <= plan.cost_ns + best, "the bound is none");
    prop_assert!(own <= plan.recompute_ns, "a plan beats all sets of runs");
    tally.best += u32::from(plan.recompute_ns == best);
    let [total, least] = [plan.recompute_ns, best].map(|again| (plan.cost_ns + again).max(1));
    tally.ratio = tally.ratio.max(total as f64 / least as f64);
    Ok(())
}

impl Tally {
    /// At least 97 plans in 100 are the best order, at most one budget in 100 is refused that has a schedule, and no
    /// plan takes more than 5% longer than the best order.
    fn is_good(&self) -> bool {
        100 * self.best >= 97 * self.feasible
            && 100 * self.refused <= self.feasible
            && self.ratio <= 1.05
    }
}

/// Measured: of 293 budgets 289 have the best order and 2 are refused; at most 4.3% longer.
#[test]
fn plans_of_ops_with_one_result_are_the_best_order_nearly_always() {
    let tally = compared(&[]);
    assert!(tally.feasible > 250 && tally.is_good(), "{tally:?}");
}

/// Measured: of 298 budgets 295 have the best order and 1 is refused; at most 4.3% longer.
#[test]
fn plans_of_ops_with_several_results_are_the_best_order_nearly_always() {
    let tally = compared(&[Trait::SeveralResults]);
    assert!(tally.feasible > 250 && tally.is_good(), "{tally:?}");
}

/// Measured: of 245 budgets 244 have the best order and 1 is refused.
#[test]
fn plans_of_steps_as_recorded_are_the_best_order_nearly_always() {
    let tally = compared(RECORDED);
    assert!(tally.feasible > 200 && tally.is_good(), "{tally:?}");
}

/// Measured: of 213 budgets 211 have the best order and 2 are refused.
#[test]
fn plans_of_steps_with_stale_reads_are_the_best_order_nearly_always() {
    let tally = compared(&[
        Trait::SeveralResults,
        Trait::Views,
        Trait::Writes,
        Trait::StaleReads,
        Trait::Requests,
    ]);
    assert!(tally.feasible > 200 && tally.is_good(), "{tally:?}");
}
