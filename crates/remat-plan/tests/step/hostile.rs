//! Plans that nobody made with care: the verifier answers, and always the same.

use crate::recordings::{claimed, counts, recordings, unclaimed};
use proptest::prelude::*;
use remat_plan::step::{Action, Addresses, StepPlan, verify};
use remat_trace::{Event, TraceOutput, TraceOutputKind};

/// A step about one of so many ops or storages, or about any number.
fn action() -> impl Strategy<Value = Action> {
    let number = prop_oneof![8 => 0u32..24, 1 => any::<u32>()];
    (number, 0u8..5).prop_map(|(number, kind)| match kind {
        0 | 1 => Action::Free(number),
        2 => Action::RunInPlace(number),
        _ => Action::Run(number),
    })
}

/// Events that need not follow one another, with numbers of any size.
fn event() -> impl Strategy<Value = Event> {
    let tensor = 0u64..12;
    let bytes = prop_oneof![0u64..99, any::<u64>()];
    let kind = prop_oneof![
        (bytes.clone(), 0u8..2)
            .prop_map(|(bytes, device)| TraceOutputKind::Fresh { bytes, device }),
        (0usize..3).prop_map(|of| TraceOutputKind::Alias { of }),
        (0usize..3).prop_map(|of| TraceOutputKind::InPlace { of }),
    ];
    let output = (tensor.clone(), kind).prop_map(|(tensor, kind)| TraceOutput { tensor, kind });
    let read = prop::collection::vec(tensor.clone(), 0..3);
    let op = (
        read.clone(),
        prop::collection::vec(output, 0..3),
        bytes.clone(),
        any::<bool>(),
    );
    prop_oneof![
        3 => (tensor.clone(), bytes).prop_map(|(tensor, bytes)| Event::Constant { tensor, bytes, device: 0 }),
        6 => op.prop_map(|(inputs, outputs, number, replay)| Event::Op {
            name: "op".into(), inputs, outputs, workspace: number, workspace_device: 0, cost: number, replay,
        }),
        1 => tensor.clone().prop_map(|tensor| Event::Retain { tensor }),
        1 => tensor.clone().prop_map(|tensor| Event::Release { tensor }),
        1 => tensor.prop_map(|tensor| Event::Pin { tensor }),
        1 => read.prop_map(|tensors| Event::Ensure { tensors }),
        1 => Just(Event::Mark { name: "mark".into() }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_plan_of_any_recording_gets_an_answer(
        events in prop::collection::vec(event(), 0..12),
        steps in prop::collection::vec(action(), 0..30),
        claims in any::<[u64; 6]>(),
        addresses in any::<Option<(u64, u64, Vec<u64>)>>(),
    ) {
        let [peak_bytes, cost_ns, recompute_ns, bound_ns, budget_bytes, _] = claims;
        let plan = unclaimed(&events, steps);
        let plan = StepPlan { peak_bytes, cost_ns, recompute_ns, bound_ns, budget_bytes, ..plan };
        let addresses = addresses.map(|(bytes, alignment, offsets)| Addresses { bytes, alignment, offsets });
        let plan = StepPlan { addresses, ..plan };
        let answer = verify(&events, &plan);
        prop_assert_eq!(&answer, &verify(&events, &plan));
        if let Err(fault) = answer {
            prop_assert_eq!(fault.to_string().lines().count(), 1);
        }
    }

    #[test]
    fn running_each_op_once_is_valid_and_one_step_more_counts_as_one(
        events in recordings(24),
        extra in action(),
        place in any::<prop::sample::Index>(),
    ) {
        let (ops, _) = counts(&events);
        let steps: Vec<Action> = (0..ops as u32).map(Action::Run).collect();
        let (plan, verified) = claimed(&events, steps.clone()).expect("no value is read after it was written into");
        prop_assert_eq!((verified.recompute_ns, verified.reruns, verified.ops), (0, 0, ops));
        let mut longer = steps;
        longer.insert(place.index(longer.len() + 1), extra);
        if let Ok((_, other)) = claimed(&events, longer) {
            prop_assert!(other.cost_ns == verified.cost_ns && other.ops == ops);
            let more = matches!(extra, Action::Run(_) | Action::RunInPlace(_));
            prop_assert_eq!(other.reruns + other.frees, 1);
            prop_assert_eq!(other.reruns == 1, more);
            prop_assert!(more || other.peak_bytes <= plan.peak_bytes);
            prop_assert!(!more || other.peak_bytes >= plan.peak_bytes);
        }
    }
}
