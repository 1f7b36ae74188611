//! Plans that can be checked by hand.

use crate::recordings::{IN_PLACE, VIEW, constant, fresh, op, release};
use remat_core::Bytes;
use remat_plan::step::{Action, Kept, Planner, Search, Step, StepError, StepPlan, Summed, verify};
use remat_trace::{Event, TraceOutputKind};
use std::ops::ControlFlow;

const KIB: u64 = 1024;

fn plan(events: &[Event], budget: u64) -> Result<StepPlan, StepError> {
    let step = Step::from_events(events).expect("events that follow one another");
    let search = Search {
        iterations: Some(30),
        ..Search::default()
    };
    let plan =
        Planner::new(&step).plan(Bytes(budget), &search, &mut |_| ControlFlow::Continue(()))?;
    verify(events, &plan).unwrap_or_else(|fault| panic!("{fault}"));
    Ok(plan)
}

fn refused(events: &[Event], budget: u64) -> bool {
    matches!(plan(events, budget), Err(StepError::Budget { .. }))
}

fn kib(number: u64) -> TraceOutputKind {
    fresh(number * KIB)
}

#[test]
fn an_empty_step_takes_nothing() {
    let step = Step::from_events(&[]).expect("no event");
    assert!(step.is_empty() && step.peak_bytes() == 0 && step.cost_ns() == 0);
    for budget in [0, u64::MAX] {
        let plan = plan(&[], budget).expect("nothing fits everywhere");
        assert!(plan.steps.is_empty() && plan.bound_ns == 0 && plan.peak_bytes == 0);
    }
}

#[test]
fn constants_take_their_bytes_and_stay() {
    let events = [constant(0, 3 * KIB), constant(1, 4 * KIB), release(0)];
    let found = plan(&events, 7 * KIB).expect("they fit");
    assert_eq!(found.steps, [Action::Run(0), Action::Run(1)]);
    assert_eq!((found.peak_bytes, found.recompute_ns), (7 * KIB, 0));
    assert!(refused(&events, 7 * KIB - 1) && refused(&events, 0));
}

/// Results of 4 KiB each, two made of a constant one after the other, and both read by the last op.
fn two() -> Vec<Event> {
    vec![
        constant(0, KIB),
        op(&[0], &[(1, kib(4))], 30),
        op(&[0], &[(2, kib(4))], 50),
        op(&[2], &[(3, kib(4))], 70),
        release(2),
        op(&[1, 3], &[(4, kib(1))], 90),
        release(1),
        release(3),
    ]
}

#[test]
fn the_cheapest_run_again_makes_room() {
    let found = plan(&two(), 10 * KIB).expect("a plan");
    assert_eq!(found.recompute_ns, 30);
    assert!(found.bound_ns > 240 && found.bound_ns <= 270);
    let again = found.steps.iter().filter(|&&step| step == Action::Run(1));
    assert_eq!(again.count(), 2);
    assert!(refused(&two(), 10 * KIB - 1));
    assert_eq!(plan(&two(), 13 * KIB).expect("all fits").recompute_ns, 0);
}

#[test]
fn runs_before_the_end_drop_what_they_read() {
    // What stays is made again before the end, from what must go by then.
    let mut events = vec![
        constant(0, KIB),
        op(&[0], &[(1, kib(4))], 1),
        op(&[1], &[(2, kib(4))], 1),
        op(&[2], &[(3, kib(4))], 1),
        release(1),
        release(2),
        op(&[0], &[(4, kib(8))], 9),
        release(4),
    ];
    assert_eq!(plan(&events, 13 * KIB).expect("all fits").recompute_ns, 0);
    let found = plan(&events, 9 * KIB).expect("a plan");
    assert_eq!((found.recompute_ns, found.peak_bytes), (3, 9 * KIB));
    if let Some(Event::Op { workspace, .. }) = events.get_mut(3) {
        *workspace = 1;
    }
    assert!(refused(&events, 9 * KIB));
}

/// A view of a result, read before and after an op that needs the room.
fn viewed(workspace: u64) -> Vec<Event> {
    let mut view = op(&[1], &[(2, VIEW)], 2);
    if let Event::Op {
        workspace: bytes, ..
    } = &mut view
    {
        *bytes = workspace;
    }
    vec![
        constant(0, KIB),
        op(&[0], &[(1, kib(4))], 30),
        view,
        op(&[0], &[(3, kib(8))], 50),
        release(3),
        op(&[2], &[(4, kib(2))], 70),
        release(1),
        release(2),
    ]
}

#[test]
fn a_view_costs_its_time_whenever_its_storage_comes_back() {
    assert_eq!(
        plan(&viewed(0), 13 * KIB).expect("all fits").recompute_ns,
        0
    );
    assert_eq!(plan(&viewed(0), 9 * KIB).expect("a plan").recompute_ns, 32);
}

#[test]
fn a_view_whose_op_takes_workspace_keeps_its_storage() {
    assert!(refused(&viewed(KIB), 9 * KIB));
    assert_eq!(
        plan(&viewed(KIB), 13 * KIB).expect("all fits").recompute_ns,
        0
    );
}

#[test]
fn a_storage_whose_view_cannot_come_back_stays_until_its_last_use_and_no_longer() {
    let mut events = viewed(0);
    if let Some(Event::Op { replay, .. }) = events.get_mut(2) {
        *replay = false;
    }
    assert!(refused(&events, 9 * KIB));
    // It is released late, and read no more.
    events.insert(6, op(&[0], &[(5, kib(12))], 1));
    events.insert(7, release(5));
    assert_eq!(plan(&events, 15 * KIB).expect("a plan").recompute_ns, 0);
    events.insert(4, Event::Pin { tensor: 1 });
    assert!(refused(&events, 15 * KIB));
}

#[test]
fn a_write_in_place_is_made_again_from_the_old_value() {
    let events = [
        constant(0, KIB),
        op(&[0], &[(1, kib(4))], 30),
        op(&[1], &[(2, IN_PLACE)], 10),
        release(1),
        op(&[0], &[(3, kib(8))], 50),
        release(3),
        op(&[2], &[(4, kib(2))], 70),
        release(2),
    ];
    let found = plan(&events, 9 * KIB).expect("a plan");
    assert_eq!(found.recompute_ns, 40);
    assert!(found.steps.contains(&Action::RunInPlace(2)));
}

/// An op that cannot run again.
fn once(inputs: &[u64], outputs: &[(u64, TraceOutputKind)], bytes: u64) -> Event {
    let mut event = op(inputs, outputs, 0);
    if let Event::Op {
        replay, workspace, ..
    } = &mut event
    {
        (*replay, *workspace) = (false, bytes);
    }
    event
}

/// Running nothing again is the best plan: the bound must not forbid to hold a value that is written into later, and
/// made again before that.
#[test]
fn the_bound_lets_values_that_are_overwritten_be_held() {
    let mut last = op(&[7, 3], &[(8, fresh(1))], 4);
    if let Event::Op { workspace, .. } = &mut last {
        *workspace = 1;
    }
    let events = [
        constant(0, 0),
        op(&[0], &[(1, fresh(0))], 0),
        op(&[1, 0], &[(2, fresh(2))], 6),
        op(&[2], &[(3, fresh(2))], 0),
        once(&[3], &[(4, fresh(0))], 0),
        release(4),
        op(&[2, 3], &[(5, fresh(0))], 0),
        op(&[5, 3, 1], &[(6, fresh(4))], 0),
        once(&[5, 6], &[(7, IN_PLACE)], 0),
        release(5),
        release(2),
        last,
        release(8),
        release(3),
    ];
    let found = plan(&events, 8).expect("a plan");
    assert_eq!((found.recompute_ns, found.bound_ns), (0, found.cost_ns));
}

/// Plans of a program that frees what it refers to no more: constants stay all the same, as those of traces do.
#[test]
fn constants_that_a_program_lets_go_of_stay() {
    let events = [
        constant(0, 3),
        constant(1, 40),
        op(&[0, 1], &[(2, fresh(10))], 5),
        release(1),
        op(&[0], &[(3, fresh(50))], 5),
        op(&[2, 3], &[(4, fresh(1))], 5),
        release(2),
        release(3),
        release(4),
    ];
    let step = Step::from_program(&events, Kept::Nothing).expect("a sound step");
    let watch = &mut |_: &_| ControlFlow::Continue(());
    let plan = Planner::new(&step)
        .plan(Bytes(110), &Search::default(), watch)
        .expect("all fits");
    assert_eq!(
        verify(&events, &plan).map(|found| found.peak_bytes),
        Ok(plan.peak_bytes)
    );
}

#[test]
fn sizes_that_add_up_to_more_than_two_to_the_61_are_refused() {
    let huge = 1 << 60;
    let two = |bytes| {
        [
            constant(0, huge),
            once(&[0], &[(1, fresh(huge))], bytes),
            release(1),
        ]
    };
    let found = plan(&two(0), u64::MAX).expect("they fit");
    assert_eq!(found.peak_bytes, 2 * huge);
    for workspace in [1, huge, u64::MAX] {
        let fault = Step::from_events(&two(workspace)).expect_err("too large");
        let (summed, sum) = (Summed::Sizes, (2 * huge).saturating_add(workspace));
        assert_eq!(fault, StepError::SumTooLarge { summed, sum });
    }
}

#[test]
fn the_smallest_plan_needs_no_budget_to_be_found() {
    let events = two();
    let step = Step::from_events(&events).expect("events that follow one another");
    let smallest = Planner::new(&step)
        .smallest(0, &mut |_| ControlFlow::Continue(()))
        .expect("a plan");
    verify(&events, &smallest).unwrap_or_else(|fault| panic!("{fault}"));
    assert_eq!(smallest.budget_bytes, smallest.peak_bytes);
    assert!(smallest.peak_bytes < step.peak_bytes());
    assert!(refused(&events, smallest.peak_bytes - 1));
    assert!(plan(&events, smallest.peak_bytes).is_ok());
}
