//! Addresses of the blocks of plans, checked by the verifier and by a walk of the test's own.

use crate::recordings::{claimed, counts, recordings};
use proptest::prelude::*;
use remat_core::Bytes;
use remat_plan::step::{
    Action, Addresses, Fault, Planner, Reason, Search, Step, StepPlan, place, verify,
};
use remat_trace::{Event, TraceOutput, TraceOutputKind, open};
use std::ops::ControlFlow;

/// Traces, and percentages of their peaks.
const ARENAS: [(&str, u64); 4] = [("gpt", 50), ("unet", 32), ("resnet", 30), ("gan", 42)];

/// The bytes of an arena over those of the plan's peak, in parts of 10,000, at most: a 256th more.
const MOST: u64 = 10_040;

fn planned(name: &str, percent: u64) -> (Vec<Event>, StepPlan) {
    let path = format!("../../traces/{name}.trace.zst");
    let reader = open(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let events: Vec<Event> = reader.map(|event| event.expect("a sound trace")).collect();
    let step = Step::from_events(&events).expect("a step");
    let budget = Bytes(step.peak_bytes() / 100 * percent);
    let search = Search {
        iterations: Some(1),
        ..Search::default()
    };
    let watch = &mut |_: &_| ControlFlow::Continue(());
    let plan = Planner::new(&step)
        .plan(budget, &search, watch)
        .expect("a plan");
    (events, plan)
}

#[test]
fn plans_of_recorded_traces_fit_into_arenas_of_their_peaks() {
    let found = ARENAS.map(|(name, percent)| {
        let (events, plan) = planned(name, percent);
        let plan = place(&events, plan, 1).expect("addresses");
        verify(&events, &plan).unwrap_or_else(|fault| panic!("{name}: {fault}"));
        let bytes = plan.addresses.as_ref().expect("addresses").bytes;
        (name, percent, bytes * 10_000 / plan.peak_bytes)
    });
    assert!(found.iter().all(|found| found.2 <= MOST), "{found:?}");
}

fn op(inputs: &[u64], tensor: u64, bytes: u64, workspace: u64) -> Event {
    let kind = TraceOutputKind::Fresh { bytes, device: 0 };
    Event::Op {
        name: "op".into(),
        inputs: inputs.to_vec(),
        outputs: vec![TraceOutput { tensor, kind }],
        workspace,
        workspace_device: 0,
        cost: 1,
        replay: true,
    }
}

/// A constant of 10 bytes, 20 bytes made of it with a workspace of 5, and 20 made of those, which are dropped.
fn small() -> (Vec<Event>, StepPlan) {
    let events = vec![
        Event::Constant {
            tensor: 0,
            bytes: 10,
            device: 0,
        },
        op(&[0], 1, 20, 5),
        op(&[1], 2, 20, 0),
        Event::Release { tensor: 1 },
    ];
    let steps = vec![
        Action::Run(0),
        Action::Run(1),
        Action::Run(2),
        Action::Free(1),
    ];
    let (plan, _) = claimed(&events, steps).expect("a plan");
    (events, plan)
}

fn with(offsets: &[u64], bytes: u64, alignment: u64) -> Result<u64, Fault> {
    let (events, plan) = small();
    let addresses = Addresses {
        bytes,
        alignment,
        offsets: offsets.to_vec(),
    };
    let plan = StepPlan {
        addresses: Some(addresses),
        ..plan
    };
    verify(&events, &plan).map(|verified| verified.peak_bytes)
}

#[test]
fn each_fault_of_addresses_is_told() {
    let reason = |offsets: &[u64], bytes, alignment| match with(offsets, bytes, alignment) {
        Err(Fault::Step { step, reason, .. }) => (step, reason),
        Err(Fault::End(reason)) => (4, reason),
        other => panic!("{other:?}"),
    };
    // The constant, the first result, its workspace, the second result in the place of the workspace.
    assert_eq!(with(&[0, 10, 30, 30], 50, 1), Ok(50));
    assert_eq!(with(&[0, 16, 40, 40], 60, 8), Ok(50));
    assert_eq!(reason(&[0, 10, 30], 50, 1), (2, Reason::NoAddress(3)));
    assert_eq!(
        reason(&[0, 10, 30, 30, 0], 50, 1),
        (4, Reason::NoSuchBlock(4))
    );
    assert_eq!(
        reason(&[0, 10, 30, 30], 49, 1),
        (2, Reason::BeyondTheArena(3))
    );
    assert_eq!(
        reason(&[0, 10, 30, u64::MAX], 50, 1),
        (2, Reason::BeyondTheArena(3))
    );
    assert_eq!(reason(&[0, 10, 29, 30], 50, 1), (1, Reason::Overlaps(2)));
    assert_eq!(reason(&[0, 9, 30, 30], 50, 1), (1, Reason::Overlaps(1)));
    assert_eq!(reason(&[25, 10, 40, 40], 80, 1), (1, Reason::Overlaps(1)));
    assert_eq!(reason(&[0, 10, 31, 30], 50, 2), (1, Reason::NotAligned(2)));
    assert_eq!(with(&[0, 10, 30, 30], 50, 3), Err(Fault::Alignment(3)));
    assert_eq!(with(&[0, 10, 30, 30], 50, 0), Err(Fault::Alignment(0)));
}

#[test]
fn plans_that_are_not_valid_and_odd_alignments_get_no_addresses() {
    let (events, plan) = small();
    assert_eq!(place(&events, plan.clone(), 48), Err(Fault::Alignment(48)));
    let wrong = StepPlan {
        steps: vec![Action::Free(7)],
        ..plan.clone()
    };
    assert!(matches!(place(&events, wrong, 64), Err(Fault::Step { .. })));
    assert_eq!(place(&events, plan, 1 << 61), Err(Fault::TooLarge));
}

proptest! {
    /// Runs again with results in memory, in place or into copies, take the blocks that the verifier expects.
    #[test]
    fn addresses_of_random_plans_are_valid(
        events in recordings(24),
        extra in prop::collection::vec((0u32..24, 0u8..3, any::<prop::sample::Index>()), 0..12),
        alignment in 0u32..8,
    ) {
        let (ops, _) = counts(&events);
        let mut steps: Vec<Action> = (0..ops as u32).map(Action::Run).collect();
        for (number, kind, place) in extra {
            let action = match kind {
                0 => Action::Run(number),
                1 => Action::RunInPlace(number),
                _ => Action::Free(number),
            };
            let mut longer = steps.clone();
            longer.insert(place.index(longer.len() + 1), action);
            if claimed(&events, longer.clone()).is_ok() {
                steps = longer;
            }
        }
        let (plan, verified) = claimed(&events, steps).expect("as before");
        let placed = place(&events, plan, 1 << alignment).expect("addresses");
        prop_assert_eq!(verify(&events, &placed), Ok(verified));
        let addresses = placed.addresses.as_ref().expect("addresses");
        prop_assert!(addresses.bytes >= verified.peak_bytes);
        // Read again as written.
        let text = serde_json::to_string(&placed).expect("JSON");
        prop_assert_eq!(serde_json::from_str::<StepPlan>(&text).expect("a plan"), placed);
    }
}
