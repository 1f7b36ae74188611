//! The engine performs any valid plan of any recorded step to the letter: planner, verifier and engine agree.

#[path = "../../remat-plan/tests/step/random_steps.rs"]
#[allow(dead_code)]
mod random_steps;
#[path = "../../remat-plan/tests/step/recordings.rs"]
#[allow(dead_code)]
mod recordings;

use random_steps::{RECORDED, check, steps};
use remat_core::{Alignment, Bytes};
use remat_plan::step::{Action, Planner, Search, Step, StepPlan, place};
use remat_sim::{Outcome, Plan, PlanAction, PlannedArena, Program, Status};
use remat_trace::Event;
use std::cell::Cell;
use std::ops::ControlFlow;

fn planned(events: &[Event], step: &Step, budget: u64) -> Option<StepPlan> {
    let search = Search {
        iterations: Some(4),
        ..Search::default()
    };
    let watch = &mut |_: &_| ControlFlow::Continue(());
    Planner::new(step)
        .plan(Bytes(budget), &search, watch)
        .ok()
        .map(|plan| place(events, plan, 4).expect("a valid plan"))
}

fn told(plan: &StepPlan, budget: u64) -> Plan {
    let actions = plan.steps.iter().map(|action| match *action {
        Action::Run(op) => PlanAction::Run(op),
        Action::RunInPlace(op) => PlanAction::RunInPlace(op),
        Action::Free(storage) => PlanAction::Drop(storage),
    });
    Plan {
        budget: Bytes(budget),
        actions: actions.collect(),
        arena: None,
    }
}

fn arena(plan: &StepPlan) -> PlannedArena {
    let addresses = plan.addresses.as_ref().expect("placed");
    PlannedArena {
        bytes: Bytes(addresses.bytes),
        alignment: Alignment::new(addresses.alignment).expect("a power of two"),
        addresses: addresses.offsets.clone(),
    }
}

fn run(program: &Program, plan: &Plan) -> Outcome {
    let base = program.base().expect("events that follow one another");
    program
        .run_plan(&base, plan, 1e9)
        .unwrap_or_else(|misfit| panic!("{misfit}"))
}

#[test]
fn runs_take_the_memory_and_the_time_of_the_plan_and_decide_nothing() {
    let (runs, again, in_place) = (Cell::new(0), Cell::new(0), Cell::new(0));
    check(400, &steps(1..=40, RECORDED), |events| {
        let program: Program = events.iter().collect();
        let step = Step::from_events(&events).expect("events that follow one another");
        for eighths in 3..=8 {
            let budget = step.peak_bytes() * eighths / 8;
            let Some(plan) = planned(&events, &step, budget) else {
                continue;
            };
            runs.set(runs.get() + 1);
            again.set(again.get() + u32::from(plan.recompute_ns > 0));
            let takes = |action: &Action| matches!(action, Action::RunInPlace(_));
            in_place.set(in_place.get() + u32::from(plan.steps.iter().any(takes)));
            let counted = told(&plan, plan.peak_bytes);
            let placed = Plan {
                arena: Some(arena(&plan)),
                ..counted.clone()
            };
            for told in [&counted, &placed] {
                let outcome = run(&program, told);
                let counters = outcome.counters;
                assert_eq!(outcome.status, Status::Ok, "{told:?}\n{events:#?}");
                assert_eq!(outcome.peak.0, plan.peak_bytes);
                assert_eq!(outcome.clock, 1 + plan.cost_ns + plan.recompute_ns);
                assert_eq!(counters.replayed_cost.0, plan.recompute_ns);
                assert_eq!(
                    (counters.searches, counters.shortages, counters.moved_bytes),
                    (0, 0, 0)
                );
            }
        }
        Ok(())
    });
    let seen = (runs.get(), again.get(), in_place.get());
    assert!(seen.0 > 500 && seen.1 > 150 && seen.2 > 20, "{seen:?}");
}

#[test]
fn a_plan_that_does_not_fit_leaves_the_engine_to_decide_which_is_told() {
    let short = Cell::new(0);
    check(100, &steps(10..=40, RECORDED), |events| {
        let program: Program = events.iter().collect();
        let step = Step::from_events(&events).expect("events that follow one another");
        let Some(plan) = planned(&events, &step, step.peak_bytes() * 7 / 8) else {
            return Ok(());
        };
        let tight = told(&plan, plan.peak_bytes.saturating_sub(1));
        if plan.peak_bytes > 0 {
            assert_eq!(run(&program, &tight).status, Status::Oom);
            short.set(short.get() + 1);
        }
        let mut moved = Plan {
            arena: Some(arena(&plan)),
            ..tight
        };
        if let Some(arena) = &mut moved.arena {
            // Blocks in use overlap, unless there is one at a time.
            let at_once = arena.addresses.iter().any(|&address| address > 0);
            arena.addresses.iter_mut().for_each(|address| *address = 0);
            if at_once {
                assert_eq!(run(&program, &moved).status, Status::Oom);
            }
        }
        Ok(())
    });
    assert!(short.get() > 20, "{short:?}");
}
