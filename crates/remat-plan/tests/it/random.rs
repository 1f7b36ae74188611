//! Properties of all plans, on random chains.

use crate::chains::{Beyond, Row, beyond, chain};
use crate::exhaustive::{Rules, least};
use crate::known::planned;
use proptest::prelude::*;
use remat_plan::chain::{Chain, PlanError, Resolution, Strategy as Kind, curve, verify};
use std::ops::ControlFlow;

/// Chains with whole times, sizes up to `largest`.
pub(crate) fn chains(stages: std::ops::Range<usize>, largest: u64) -> impl Strategy<Value = Chain> {
    let row = (
        0..6u32,
        0..6u32,
        0..=largest,
        0..=largest,
        0..=largest / 2,
        0..=largest / 2,
    );
    let row = row.prop_map(|(f, b, activation, more, of, ob)| -> Row {
        (f.into(), b.into(), activation, activation + more, of, ob)
    });
    let more = (prop::option::of(0..=largest / 2), 0..=largest, 0..=largest);
    let said = prop_oneof![
        Just(vec![Beyond::default()]),
        prop::collection::vec(more, 1..stages.end),
    ];
    (0..=largest, prop::collection::vec(row, stages), said)
        .prop_map(|(input, rows, said)| beyond(&chain(input, &rows), &said))
}

fn everything(chain: &Chain) -> u64 {
    let plan = planned(chain, 1 << 60, Kind::None, Resolution::Exact);
    plan.unwrap().peak_bytes
}

fn makespan(chain: &Chain, budget: u64, kind: Kind, resolution: Resolution) -> f64 {
    match planned(chain, budget, kind, resolution) {
        Ok(plan) => plan.makespan,
        Err(PlanError::Infeasible { .. }) => f64::INFINITY,
        Err(error) => panic!("{error}"),
    }
}

fn slots(count: usize) -> Resolution {
    count.to_string().parse().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases * 6 / 5))]

    #[test]
    fn plans_are_optimal_in_their_class(chain in chains(1..6, 4), part in 0.2..1.0f64) {
        let budget = (everything(&chain) as f64 * part) as u64;
        let best = |rules| least(&chain, budget, rules).map_or(f64::INFINITY, |time| time as f64);
        let found = |kind| makespan(&chain, budget, kind, Resolution::Exact);
        prop_assert_eq!(found(Kind::Revolve), best(Rules::Revolve));
        prop_assert_eq!(found(Kind::Persistent), best(Rules::Persistent));
        prop_assert_eq!(found(Kind::Floating), best(Rules::DroppingWithInputs));
        prop_assert!(found(Kind::Free) <= best(Rules::DroppingWithInputs));
        if chain.stages().iter().all(|stage| stage.released_bytes == 0) {
            prop_assert_eq!(found(Kind::Free), best(Rules::DroppingUntilRead));
            prop_assert!(found(Kind::Free) <= best(Rules::Table));
        }
    }

    #[test]
    fn every_plan_is_valid_within_its_budget_and_worth_what_it_says(
        chain in chains(1..14, 1000),
        part in 0.2..1.1f64,
        count in 1..200usize,
    ) {
        let budget = (everything(&chain) as f64 * part) as u64;
        for kind in Kind::ALL {
            for resolution in [Resolution::Exact, slots(count)] {
                match planned(&chain, budget, kind, resolution) {
                    Ok(plan) => {
                        let verified = verify(&chain, &plan.sequence).unwrap();
                        prop_assert!(plan.peak_bytes <= budget);
                        prop_assert_eq!(verified.peak_bytes, plan.peak_bytes);
                        prop_assert!((verified.makespan - plan.makespan).abs() < 1e-9);
                    }
                    Err(PlanError::Infeasible { smallest, .. }) => {
                        prop_assert!(smallest > budget);
                        prop_assert!(planned(&chain, smallest, kind, resolution).is_ok());
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }

    #[test]
    fn larger_classes_finer_counting_and_more_memory_never_take_longer(
        chain in chains(1..10, 100),
        part in 0.2..1.0f64,
        more in 1.0..1.5f64,
        count in 1..100usize,
    ) {
        let budget = (everything(&chain) as f64 * part) as u64;
        let exact = |kind| makespan(&chain, budget, kind, Resolution::Exact);
        let order = [Kind::Free, Kind::Floating, Kind::Persistent, Kind::Revolve];
        for pair in order.windows(2) {
            prop_assert!(exact(pair[0]) <= exact(pair[1]), "{} > {}", pair[0], pair[1]);
        }
        for kind in [Kind::Periodic(None), Kind::ChenSqrt, Kind::ChenGreedy, Kind::Treeverse] {
            prop_assert!(exact(Kind::Persistent) <= exact(kind), "{kind}");
        }
        for kind in order {
            let roughly = makespan(&chain, budget, kind, slots(count));
            prop_assert!(exact(kind) <= roughly);
            let larger = (budget as f64 * more) as u64;
            prop_assert!(makespan(&chain, larger, kind, Resolution::Exact) <= exact(kind));
        }
    }

    #[test]
    fn slots_of_a_byte_are_exact(chain in chains(1..12, 60), part in 0.2..1.0f64) {
        let budget = (everything(&chain) as f64 * part) as u64;
        for kind in [Kind::Revolve, Kind::Persistent, Kind::Floating, Kind::Free] {
            let counted = makespan(&chain, budget, kind, slots(budget.max(1) as usize));
            prop_assert_eq!(counted, makespan(&chain, budget, kind, Resolution::Exact), "{}", kind);
        }
    }

    #[test]
    fn a_curve_says_what_single_plans_say(chain in chains(1..9, 60)) {
        for kind in Kind::ALL {
            let points = curve(&chain, None, kind, Resolution::Exact, &mut |_| ControlFlow::Continue(())).unwrap();
            for (at, point) in points.iter().enumerate() {
                let plan = planned(&chain, point.peak_bytes, kind, Resolution::Exact).unwrap();
                prop_assert_eq!((plan.peak_bytes, plan.makespan), (point.peak_bytes, point.makespan), "{}", kind);
                let before = makespan(&chain, point.peak_bytes - 1, kind, Resolution::Exact);
                let lower = if at == 0 { f64::INFINITY } else { points[at - 1].makespan };
                prop_assert_eq!(before, lower, "{}", kind);
            }
        }
    }

    #[test]
    fn a_curve_by_slots_falls_and_is_never_below_the_optimum(chain in chains(1..12, 500), count in 2..60usize) {
        for kind in [Kind::Persistent, Kind::Floating] {
            let points = curve(&chain, None, kind, slots(count), &mut |_| ControlFlow::Continue(())).unwrap();
            for pair in points.windows(2) {
                prop_assert!(pair[0].peak_bytes < pair[1].peak_bytes);
                prop_assert!(pair[0].makespan > pair[1].makespan);
            }
            for point in points {
                let optimum = makespan(&chain, point.peak_bytes, kind, Resolution::Exact);
                prop_assert!(optimum <= point.makespan);
            }
        }
    }
}
