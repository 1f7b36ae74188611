//! Runs that drop an activation once nothing reads it, against definition 3.4 and against a count by sets.

use crate::chains::chain;
use crate::known::planned;
use crate::random::chains;
use proptest::prelude::*;
use remat_plan::chain::{
    Action, Chain, Op, Resolution, Strategy as Kind, needed_later, peak_of_run, verify,
};
use std::collections::BTreeSet;

/// The most bytes at once, every value of every moment listed anew.
fn by_sets(chain: &Chain, ops: &[Op]) -> u64 {
    let reads = |op: &Op| op.stage - 1;
    let forward = |op: &&Op| op.action != Action::Backward;
    let mut peak = chain.activation(0);
    for (now, op) in ops.iter().enumerate() {
        let made = |stage: usize| {
            ops[..now]
                .iter()
                .filter(forward)
                .any(|op| op.stage == stage)
        };
        let read_next = |activation: usize| {
            let mut next = ops[now..].iter().filter(forward);
            let next = next.find(|op| reads(op) == activation || op.stage == activation);
            next.is_some_and(|op| reads(op) == activation)
        };
        let is_saved = |stage: usize| {
            let about = |op: &&Op| {
                op.stage == stage && matches!(op.action, Action::ForwardAll | Action::Backward)
            };
            ops[..now]
                .iter()
                .rev()
                .find(about)
                .is_some_and(|op| op.action == Action::ForwardAll)
        };
        let saved: BTreeSet<usize> = (1..=chain.len()).filter(|&stage| is_saved(stage)).collect();
        let inputs = saved.iter().map(|stage| stage - 1);
        let live =
            (1..=chain.len()).filter(|&activation| made(activation) && read_next(activation));
        let activations: BTreeSet<usize> = [0].into_iter().chain(live).chain(inputs).collect();
        let mut done = ops[..now].iter().filter(|op| op.action == Action::Backward);
        let parameters: u64 = done
            .clone()
            .map(|op| chain.stage(op.stage).parameter_gradient_bytes)
            .sum();
        let gradient = done
            .next_back()
            .map_or(0, |op| chain.gradient(op.stage - 1));
        let held = activations
            .difference(&saved)
            .map(|&l| chain.activation(l))
            .sum::<u64>()
            + saved
                .iter()
                .map(|&l| chain.stage(l).saved_bytes)
                .sum::<u64>()
            + parameters;
        let stage = chain.stage(op.stage);
        let during = match op.action {
            Action::Backward => {
                let next = chain.gradient(op.stage - 1);
                let both = gradient + next + stage.backward_overhead_bytes;
                let running = stage
                    .backward_bytes
                    .map_or(both, |bytes| bytes.max(gradient).max(next));
                held - stage.released_bytes + stage.parameter_gradient_bytes + running
            }
            Action::ForwardAll => held + gradient + stage.saved_bytes + stage.saving_overhead(),
            _ => held + gradient + chain.activation(op.stage) + stage.forward_overhead_bytes,
        };
        peak = peak.max(during);
    }
    peak
}

/// The same chain whose backward operations take bytes of their own.
fn with_backward_bytes(chain: &Chain, bytes: &[Option<u64>]) -> Chain {
    let mut description = chain.description().clone();
    for (stage, bytes) in description.stages.iter_mut().zip(bytes.iter().cycle()) {
        stage.backward_bytes = *bytes;
    }
    Chain::new(description).unwrap()
}

const RUN: [Kind; 7] = [
    Kind::None,
    Kind::Persistent,
    Kind::Floating,
    Kind::Revolve,
    Kind::Periodic(None),
    Kind::ChenGreedy,
    Kind::Treeverse,
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_run_takes_no_more_than_definition_3_4_and_what_sets_say(
        chain in chains(1..9, 60),
        part in 0.2..1.1f64,
        bytes in prop::collection::vec(prop::option::of(0..200u64), 1..5),
    ) {
        let whole = planned(&chain, 1 << 60, Kind::None, Resolution::Exact).unwrap();
        let budget = (whole.peak_bytes as f64 * part) as u64;
        for kind in RUN {
            let Ok(plan) = planned(&chain, budget, kind, Resolution::Exact) else {
                continue;
            };
            // Plans that save the loss late are no runs: a framework calls the loss once.
            let Ok(peak) = peak_of_run(&chain, &plan.sequence) else {
                prop_assert!(!starts_with_all(&plan.sequence, chain.len()), "{kind}");
                continue;
            };
            let verified = verify(&chain, &plan.sequence).unwrap();
            prop_assert!(peak <= verified.peak_bytes, "{kind}: {peak} > {}", verified.peak_bytes);
            prop_assert_eq!(peak, by_sets(&chain, &plan.sequence), "{}", kind);
            let measured = with_backward_bytes(&chain, &bytes);
            let peak = peak_of_run(&measured, &plan.sequence).unwrap();
            prop_assert_eq!(peak, by_sets(&measured, &plan.sequence), "{}", kind);
        }
    }

    #[test]
    fn where_everything_is_kept_both_say_the_same_but_for_the_gradient_of_the_loss(chain in chains(1..9, 60)) {
        let mut description = chain.description().clone();
        description.stages.last_mut().unwrap().gradient_bytes = Some(0);
        let chain = Chain::new(description).unwrap();
        let plan = planned(&chain, 1 << 60, Kind::None, Resolution::Exact).unwrap();
        prop_assert_eq!(peak_of_run(&chain, &plan.sequence).unwrap(), plan.peak_bytes);
    }
}

/// A framework can run the forward part: every stage in order, the loss saved.
fn starts_with_all(ops: &[Op], stages: usize) -> bool {
    let first = ops.iter().take(stages).enumerate();
    let in_order =
        first.filter(|(index, op)| op.stage == index + 1 && op.action != Action::Backward);
    in_order.count() == stages && ops[stages - 1].action == Action::ForwardAll
}

fn ops(words: &str) -> Vec<Op> {
    let op = |word: &str| {
        let (name, stage) = word.split_at(word.find(|c: char| c.is_ascii_digit()).unwrap());
        serde_json::from_value(serde_json::json!([name, stage.parse::<usize>().unwrap()])).unwrap()
    };
    words.split_whitespace().map(op).collect()
}

fn three() -> Chain {
    chain(
        1,
        &[
            (1.0, 1.0, 10, 100, 0, 0),
            (1.0, 1.0, 20, 200, 0, 0),
            (1.0, 1.0, 0, 0, 0, 0),
        ],
    )
}

#[test]
fn an_activation_goes_before_its_stage_is_saved_again() {
    let words = "Fck1 Fck2 Fall3 B3 Fall2 B2 Fall1 B1";
    let needed: Vec<Vec<usize>> = needed_later(&ops(words))
        .into_iter()
        .map(Vec::from_iter)
        .collect();
    assert_eq!(
        needed[..4],
        [vec![0, 1], vec![0, 1, 2], vec![0, 1], vec![0, 1]]
    );
    // The input, activation 1, the saved set of stage 2 and the gradients of activations 1 and 2.
    assert_eq!(
        peak_of_run(&three(), &ops(words)),
        Ok(1 + 10 + 200 + 10 + 20)
    );
}

#[test]
fn what_a_framework_cannot_run_is_refused_with_the_operation() {
    let cases = [
        (
            "Fck1 Fall2 B2 B1",
            "operation 3 (B2): a run begins with every stage's forward",
        ),
        (
            "Fall1 Fall2",
            "after operation 2: a run begins with every stage's forward",
        ),
        (
            "Fall1 Fall2 Fck3 B3 B2 B1",
            "operation 3 (Fck3): the loss must be run once, saving all",
        ),
        (
            "Fall1 Fall2 Fall3 B3 B1",
            "operation 5 (B1): every stage has one backward operation",
        ),
        (
            "Fall1 Fall2 Fall3 B3 B2",
            "after operation 5: B1 is missing",
        ),
        (
            "Fall1 Fck2 Fall3 B3 B2 B1",
            "operation 5 (B2): the saved set of stage 2 is not there",
        ),
        (
            "Fnone1 Fnone2 Fall3 B3 Fall2 B2 Fall1 B1",
            "operation 5 (Fall2): activation 1 is not there",
        ),
        (
            "Fall1 Fsave2 Fall3 B3 B2 B1",
            "operation 2 (Fsave2): no operation on a chain of 3 stages",
        ),
        (
            "Fall1 Fall2 Fall3 B3 B2 B1 Fall9",
            "operation 7 (Fall9): no operation on a chain of 3 stages",
        ),
    ];
    for (words, reason) in cases {
        let refused = peak_of_run(&three(), &ops(words)).unwrap_err().to_string();
        assert!(refused.starts_with(reason), "{words}: {refused}");
    }
}
