//! Plans without runs again that drop each storage after its last use: what they take is worked out twice.

use crate::recordings::{claimed, recordings};
use proptest::prelude::*;
use remat_plan::step::{Action, Step};
use remat_trace::{Event, TraceOutputKind};
use std::collections::{HashMap, HashSet};

/// Runs each op once, and drops each storage right after its last use.
fn thrifty(events: &[Event]) -> Vec<Action> {
    let mut storage_of: HashMap<u64, usize> = HashMap::new();
    let mut references: HashMap<u64, u32> = HashMap::new();
    // For each storage, the last op before which it must not go; none where it stays.
    let mut last: Vec<Option<u32>> = Vec::new();
    let mut pinned: HashSet<usize> = HashSet::new();
    let mut ops = 0u32;
    for event in events {
        match event {
            Event::Constant { tensor, .. } => {
                storage_of.insert(*tensor, last.len());
                references.insert(*tensor, 1);
                last.push(None);
                ops += 1;
            }
            Event::Op {
                inputs, outputs, ..
            } => {
                for input in inputs {
                    let storage = storage_of[input];
                    last[storage] = last[storage].map(|_| ops);
                }
                for output in outputs {
                    let storage = match output.kind {
                        TraceOutputKind::Alias { of } => storage_of[&inputs[of]],
                        TraceOutputKind::Fresh { .. } => last.len(),
                        TraceOutputKind::InPlace { of } => {
                            last[storage_of[&inputs[of]]] = None;
                            last.len()
                        }
                    };
                    if storage == last.len() {
                        last.push(Some(ops));
                    }
                    storage_of.insert(output.tensor, storage);
                    references.insert(output.tensor, 1);
                }
                ops += 1;
            }
            Event::Release { tensor } => {
                *references.get_mut(tensor).unwrap() -= 1;
                let storage = storage_of[tensor];
                let mut held = references.iter().filter(|&(_, &count)| count > 0);
                if pinned.contains(&storage) && !held.any(|(held, _)| storage_of[held] == storage) {
                    last[storage] = last[storage].map(|_| ops - 1);
                }
            }
            Event::Retain { tensor } => *references.get_mut(tensor).unwrap() += 1,
            Event::Pin { tensor } => {
                let storage = storage_of[tensor];
                pinned.insert(storage);
                last[storage] = last[storage].map(|_| ops - 1);
            }
            Event::Ensure { tensors } => {
                for tensor in tensors {
                    let storage = storage_of[tensor];
                    last[storage] = last[storage].map(|_| ops - 1);
                }
            }
            Event::Mark { .. } | Event::Plan(_) => {}
        }
    }
    for (tensor, _) in references.iter().filter(|&(_, &count)| count > 0) {
        last[storage_of[tensor]] = None;
    }
    let mut steps = Vec::new();
    for op in 0..ops {
        steps.push(Action::Run(op));
        let gone = (0..last.len()).filter(|&storage| last[storage] == Some(op));
        steps.extend(gone.map(|storage| Action::Free(storage as u32)));
    }
    steps
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn the_peak_of_a_step_is_that_of_the_plan_that_drops_each_storage_after_its_last_use(events in recordings(40)) {
        let step = Step::from_events(&events).expect("events that follow one another");
        let (plan, verified) = claimed(&events, thrifty(&events)).expect("a valid plan");
        prop_assert_eq!(verified.peak_bytes, step.peak_bytes());
        prop_assert_eq!(verified.cost_ns, step.cost_ns());
        prop_assert_eq!(plan.ops, step.len() as u64);
    }
}
