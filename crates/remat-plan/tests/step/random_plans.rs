//! Plans of random steps of some dozens of ops, within budgets from what the largest op takes to the step's peak.

use crate::numbered::{Made, Numbered};
use crate::random_steps::{RECORDED, Trait, check, steps};
use proptest::prelude::*;
use remat_core::Bytes;
use remat_plan::step::{Action, Planner, Progress, Search, Step, StepError, StepPlan, verify};
use remat_trace::{Event, Rerun};
use std::cell::Cell;
use std::ops::ControlFlow;

/// Without requests, a run's place between two first runs says all.
const WITHOUT_REQUESTS: &[Trait] = &[Trait::SeveralResults, Trait::Views, Trait::Writes];

fn rounds(iterations: u64) -> Search {
    Search {
        iterations: Some(iterations),
        ..Search::default()
    }
}

fn plan(events: &[Event], budget: u64, search: &Search) -> Option<StepPlan> {
    watched(events, budget, search, &mut |_| ControlFlow::Continue(()))
}

/// A plan, verified, if the budget is not refused.
fn watched(
    events: &[Event],
    budget: u64,
    search: &Search,
    watch: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
) -> Option<StepPlan> {
    let step = Step::from_events(events).expect("events that follow one another");
    let plan = match Planner::new(&step).plan(Bytes(budget), search, watch) {
        Ok(plan) => plan,
        Err(StepError::Budget { .. }) => return None,
        Err(error) => panic!("{error}"),
    };
    match verify(events, &plan) {
        Ok(verified) => {
            assert_eq!(verified.peak_bytes, plan.peak_bytes);
            assert_eq!(verified.recompute_ns, plan.recompute_ns);
            assert_eq!(verified.cost_ns, step.cost_ns());
            assert!(plan.peak_bytes <= budget);
            assert!(plan.bound_ns <= plan.cost_ns + plan.recompute_ns);
        }
        Err(fault) => panic!("within {budget}: {fault}"),
    }
    Some(plan)
}

/// The bytes of the largest op, the peak, and three budgets between.
fn budgets(events: &[Event]) -> Vec<u64> {
    let step = Numbered::of(events);
    let bytes = |tensors: &[usize]| {
        let tensors = tensors.iter().map(|&tensor| step.tensors[tensor]);
        let own = tensors.filter(|tensor| tensor.made == Made::Fresh);
        own.map(|tensor| step.storages[tensor.storage].bytes)
            .sum::<u64>()
    };
    let ops = step.ops.iter();
    let each = ops.map(|op| bytes(&op.outputs) + bytes(&op.inputs) + op.workspace);
    let largest = each.max().unwrap_or(0);
    let peak = Step::from_events(events).expect("a step").peak_bytes();
    let between = |part| largest + peak.saturating_sub(largest) * part / 4;
    (0..=4).map(between).collect()
}

#[test]
fn every_plan_is_valid_and_the_peak_is_never_refused() {
    let (found, again) = (Cell::new(0), Cell::new(0));
    check(120, &steps(1..=60, RECORDED), |events| {
        let budgets = budgets(&events);
        for &budget in &budgets {
            let plan = plan(&events, budget, &rounds(4));
            found.set(found.get() + u32::from(plan.is_some()));
            again.set(again.get() + u32::from(plan.is_some_and(|plan| plan.recompute_ns > 0)));
        }
        for budget in [budgets[4], u64::MAX] {
            let plan = plan(&events, budget, &rounds(4)).expect("all fits");
            prop_assert_eq!((plan.recompute_ns, plan.bound_ns), (0, plan.cost_ns));
        }
        prop_assert!(budgets[4] == 0 || plan(&events, 0, &rounds(4)).is_none());
        Ok(())
    });
    assert!(found.get() > 200 && again.get() > 60, "{found:?} {again:?}");
}

#[test]
fn the_same_seed_gives_the_same_plan() {
    let differ = Cell::new(0);
    check(60, &steps(20..=60, RECORDED), |events| {
        let budget = budgets(&events)[3];
        let seeds = [1, 1, 2].map(|seed| Search { seed, ..rounds(20) });
        let [one, same, other] = seeds.map(|search| plan(&events, budget, &search));
        prop_assert_eq!(&one, &same);
        let steps = |plan: Option<StepPlan>| plan.map(|plan| plan.steps);
        differ.set(differ.get() + u32::from(steps(one) != steps(other)));
        Ok(())
    });
    assert!(differ.get() > 0, "seeds make no difference");
}

#[test]
fn more_rounds_never_cost_more() {
    let better = Cell::new(0);
    check(60, &steps(20..=60, RECORDED), |events| {
        for budget in &budgets(&events)[2..4] {
            let more = [0, 1, 5, 30].map(|most| plan(&events, *budget, &rounds(most)));
            for pair in more.windows(2) {
                let [Some(fewer), Some(more)] = pair else {
                    prop_assert!(pair[0].is_none() && pair[1].is_none());
                    continue;
                };
                prop_assert!(more.recompute_ns <= fewer.recompute_ns);
                better.set(better.get() + u32::from(more.recompute_ns < fewer.recompute_ns));
            }
        }
        Ok(())
    });
    assert!(better.get() > 0, "rounds make no difference");
}

/// The runs again of a plan, each told by the event after the first run before it.
fn runs_of(plan: &StepPlan, events: &[Event]) -> Vec<Rerun> {
    let counted = events
        .iter()
        .filter(|event| !matches!(event, Event::Mark { .. }));
    let first_runs = counted
        .zip(1u32..)
        .filter(|(event, _)| matches!(event, Event::Constant { .. } | Event::Op { .. }));
    let places: Vec<u32> = first_runs.map(|(_, next)| next).collect();
    let mut runs = Vec::new();
    let mut ran = 0;
    for action in &plan.steps {
        match *action {
            Action::Run(op) | Action::RunInPlace(op) if op == ran => ran += 1,
            Action::Run(op) | Action::RunInPlace(op) => runs.push(Rerun {
                op,
                event: places[ran as usize - 1],
            }),
            Action::Free(_) => {}
        }
    }
    runs
}

#[test]
fn a_plan_costs_at_most_as_much_as_a_known_schedule() {
    let helped = Cell::new(0);
    check(80, &steps(20..=60, WITHOUT_REQUESTS), |events| {
        for budget in &budgets(&events)[1..4] {
            let Some(known) = plan(&events, *budget, &rounds(30)) else {
                continue;
            };
            let runs = vec![runs_of(&known, &events)];
            let search = Search {
                known: runs,
                ..rounds(0)
            };
            let followed = plan(&events, *budget, &search).expect("the known one fits");
            prop_assert!(followed.recompute_ns <= known.recompute_ns);
            let alone = plan(&events, *budget, &rounds(0));
            let worse = alone.is_none_or(|alone| alone.recompute_ns > followed.recompute_ns);
            helped.set(helped.get() + u32::from(worse));
        }
        Ok(())
    });
    assert!(helped.get() > 0, "known schedules make no difference");
}

#[test]
fn a_search_that_is_ended_gives_the_best_plan_so_far() {
    let ended = Cell::new(0);
    check(80, &steps(20..=60, RECORDED), |events| {
        let budget = budgets(&events)[3];
        let whole = plan(&events, budget, &rounds(30));
        let mut last = None;
        let first = watched(&events, budget, &rounds(30), &mut |progress| {
            last = progress.recompute_ns;
            match last {
                Some(_) => ControlFlow::Break(()),
                None => ControlFlow::Continue(()),
            }
        });
        prop_assert_eq!(first.is_some(), whole.is_some());
        if let (Some(first), Some(whole)) = (first, whole) {
            prop_assert!(first.recompute_ns >= whole.recompute_ns);
            prop_assert!(last.is_none_or(|last| first.recompute_ns <= last));
            ended.set(ended.get() + u32::from(first.iterations < whole.iterations));
        }
        let none = watched(
            &events,
            budget,
            &rounds(30),
            &mut |_| ControlFlow::Break(()),
        );
        prop_assert!(none.is_none_or(|plan| plan.iterations == 0));
        Ok(())
    });
    assert!(ended.get() > 0, "no search was ended early");
}
