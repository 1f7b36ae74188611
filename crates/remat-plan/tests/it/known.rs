//! Cases of the paper.

use crate::chains::{chain, counterexample, partition, toy};
use crate::exhaustive::{Rules, least};
use remat_plan::chain::{Chain, Op, Plan, PlanError, Resolution, Strategy, plan, verify};
use std::ops::ControlFlow;

pub(crate) fn planned(
    chain: &Chain,
    budget: u64,
    strategy: Strategy,
    resolution: Resolution,
) -> Result<Plan, PlanError> {
    plan(chain, budget, strategy, resolution, &mut |_| {
        ControlFlow::Continue(())
    })
}

fn words(plan: &Plan) -> String {
    let words: Vec<String> = plan.sequence.iter().map(Op::to_string).collect();
    words.join(" ")
}

#[test]
fn the_toy_example_is_planned_as_in_the_paper() {
    for strategy in [Strategy::Persistent, Strategy::Floating] {
        let plan = planned(&toy(), 9000, strategy, Resolution::Exact).unwrap();
        assert!((plan.makespan - 47.42).abs() < 1e-9, "{}", plan.makespan);
        assert_eq!(plan.peak_bytes, 8675); // 86.8 MB
        assert_eq!(
            words(&plan),
            "Fck1 Fnone2 Fnone3 Fall4 Fall5 Fall6 Fall7 B7 B6 B5 B4 Fck1 Fnone2 Fall3 B3 Fall1 Fall2 B2 B1"
        );
    }
}

#[test]
fn the_toy_example_without_a_limit_computes_everything_once() {
    let plan = planned(&toy(), 1 << 40, Strategy::Persistent, Resolution::Exact).unwrap();
    assert!((plan.makespan - 37.38).abs() < 1e-9);
    assert_eq!(plan.overhead, 1.0);
    assert!((10_690..10_710).contains(&plan.peak_bytes)); // 107 MB
    let alike = planned(&toy(), 1 << 40, Strategy::None, Resolution::Exact).unwrap();
    assert_eq!(plan.sequence, alike.sequence);
}

/// Where gradients differ in size, a dropped input is made again more cheaply while a small gradient is there, before
/// the backward operation of a later stage. Free plans do not do so.
#[test]
fn free_plans_make_dropped_inputs_again_right_before_they_are_read() {
    let chain = chain(
        3,
        &[
            (0.0, 0.0, 3, 3, 0, 0),
            (0.0, 0.0, 2, 6, 2, 0),
            (1.0, 0.0, 4, 4, 0, 0),
            (0.0, 0.0, 0, 0, 0, 0),
            (0.0, 0.0, 4, 4, 1, 0),
        ],
    );
    let plan = planned(&chain, 17, Strategy::Free, Resolution::Exact).unwrap();
    assert_eq!(plan.makespan, 2.0);
    assert_eq!(least(&chain, 17, Rules::DroppingUntilRead), Some(2));
    assert_eq!(least(&chain, 17, Rules::Dropping), Some(1));
}

#[test]
fn no_persistent_plan_of_the_counterexample_is_optimal() {
    for n in 4..30 {
        let chain = counterexample(n);
        let time = |strategy| {
            planned(&chain, 15, strategy, Resolution::Exact)
                .unwrap()
                .makespan
        };
        assert_eq!(time(Strategy::Persistent), 3.0 * n as f64 - 2.0, "n = {n}");
        assert_eq!(time(Strategy::Floating), 2.0 * n as f64 + 2.0, "n = {n}");
        assert_eq!(time(Strategy::Free), 2.0 * n as f64, "n = {n}");
    }
}

#[test]
fn numbers_are_parted_by_planning() {
    let cases: [(&[u64], bool); 6] = [
        (&[1, 1], true),
        (&[3, 1, 1, 2, 2, 1], true),
        (&[2, 2, 2], false),
        (&[5, 5, 4, 4, 2], true),
        (&[7, 7, 7, 1], false),
        (&[10, 9, 8, 7, 6, 4], true),
    ];
    for (numbers, parts) in cases {
        let (chain, half) = partition(numbers);
        let most = 4.0 * half as f64 + chain.len() as f64;
        let plan = planned(&chain, 3 * half, Strategy::Floating, Resolution::Exact).unwrap();
        assert_eq!(
            plan.makespan <= most,
            parts,
            "{numbers:?}: {}",
            plan.makespan
        );
    }
}

#[test]
fn a_refusal_names_the_smallest_budget_that_does() {
    for strategy in Strategy::ALL {
        let refused = planned(&toy(), 100, strategy, Resolution::Exact).unwrap_err();
        let PlanError::Infeasible { smallest, .. } = refused else {
            panic!("{strategy}: {refused}");
        };
        for resolution in [Resolution::Exact, Resolution::default()] {
            let plan = planned(&toy(), smallest, strategy, resolution).unwrap();
            let verified = verify(&toy(), &plan.sequence).unwrap();
            assert_eq!(verified.peak_bytes, smallest, "{strategy}");
            assert!(planned(&toy(), smallest - 1, strategy, resolution).is_err());
        }
    }
}
