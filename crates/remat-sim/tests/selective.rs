//! Selective activation recomputation: of a layer of attention made by hand, and of the recorded GPT.

use remat_core::{Arena, Bytes, Memory};
use remat_sim::{Budget, Eviction, NoAttention, Outcome, Program, Setting, Status};
use remat_trace::{Event, TraceOutput, TraceOutputKind};
use std::path::Path;

/// Bytes of a matrix of activations, of scores, and of a parameter.
const WIDE: u64 = 10;
const SCORES: u64 = 100;
const PARAMETER: u64 = 1;

const X: u64 = 0;
const W: u64 = 1;
const Q: u64 = 2;
const K: u64 = 3;
const V: u64 = 4;
const SCORE: u64 = 5;
const MASK: u64 = 6;
const MASKED: u64 = 7;
const WEIGHTS: u64 = 8;
const DRAWN: u64 = 9;
const KEPT: u64 = 10;
const DROPPED: u64 = 11;
const CONTEXT: u64 = 12;
const OUT: u64 = 13;

fn op(name: &str, inputs: &[u64], tensor: u64, kind: TraceOutputKind, cost: u64) -> Event {
    Event::Op {
        name: name.into(),
        inputs: inputs.to_vec(),
        outputs: vec![TraceOutput { tensor, kind }],
        workspace: 0,
        workspace_device: 0,
        cost,
        replay: true,
    }
}

fn fresh(bytes: u64) -> TraceOutputKind {
    TraceOutputKind::Fresh { bytes, device: 0 }
}

fn constant(tensor: u64, bytes: u64) -> Event {
    Event::Constant {
        tensor,
        bytes,
        device: 0,
    }
}

fn release(tensor: u64) -> Event {
    Event::Release { tensor }
}

/// One layer: queries, keys and values of x, masked scores, softmax, dropout, the product with values, another product.
fn forward() -> Vec<Event> {
    vec![
        constant(X, WIDE),
        constant(W, PARAMETER),
        op("mm", &[X, W], Q, fresh(WIDE), 1000),
        op("mm", &[X, W], K, fresh(WIDE), 1000),
        op("mm", &[X, W], V, fresh(WIDE), 1000),
        op("aten.bmm.default", &[Q, K], SCORE, fresh(SCORES), 1),
        op("aten.tril.default", &[], MASK, fresh(SCORES), 2),
        op("aten.add.Tensor", &[SCORE, MASK], MASKED, fresh(SCORES), 4),
        release(SCORE),
        release(MASK),
        op(
            "aten._softmax.default",
            &[MASKED],
            WEIGHTS,
            fresh(SCORES),
            8,
        ),
        release(MASKED),
        op("aten.bernoulli_.float", &[], DRAWN, fresh(SCORES), 16),
        op(
            "aten.div_.Scalar",
            &[DRAWN],
            KEPT,
            TraceOutputKind::InPlace { of: 0 },
            32,
        ),
        release(DRAWN),
        op(
            "aten.mul.Tensor",
            &[WEIGHTS, KEPT],
            DROPPED,
            fresh(SCORES),
            64,
        ),
        op(
            "aten.bmm.default",
            &[DROPPED, V],
            CONTEXT,
            fresh(WIDE),
            1000,
        ),
        op("mm", &[CONTEXT, W], OUT, fresh(WIDE), 1000),
    ]
}

/// The cost of the seven ops of the core.
const CORE: u64 = 127;

/// The gradients of what the layer computed, as autograd orders them.
fn backward() -> Vec<Event> {
    let gradient = |tensor: u64| 100 + tensor;
    let mut events = vec![
        op(
            "mse_loss_backward",
            &[OUT],
            gradient(OUT),
            fresh(WIDE),
            1000,
        ),
        release(OUT),
    ];
    let mut step = |name: &str, inputs: &[u64], made: u64, bytes: u64, gone: &[u64]| {
        events.push(op(name, inputs, gradient(made), fresh(bytes), 1000));
        events.extend(gone.iter().map(|&tensor| release(tensor)));
    };
    step(
        "mm",
        &[gradient(OUT), W],
        CONTEXT,
        WIDE,
        &[gradient(OUT), CONTEXT],
    );
    step("bmm", &[DROPPED, gradient(CONTEXT)], V, WIDE, &[DROPPED]);
    step(
        "bmm",
        &[gradient(CONTEXT), V],
        DROPPED,
        SCORES,
        &[gradient(CONTEXT), V],
    );
    step(
        "mul",
        &[gradient(DROPPED), KEPT],
        WEIGHTS,
        SCORES,
        &[gradient(DROPPED), KEPT],
    );
    let softmax = [gradient(WEIGHTS), WEIGHTS];
    step(
        "aten._softmax_backward_data.default",
        &softmax,
        SCORE,
        SCORES,
        &softmax,
    );
    step("bmm", &[gradient(SCORE), K], Q, WIDE, &[]);
    step(
        "bmm",
        &[gradient(SCORE), Q],
        K,
        WIDE,
        &[gradient(SCORE), Q, K],
    );
    events
}

fn program(events: &[Event]) -> Program {
    events.iter().collect()
}

fn layer() -> Program {
    program(&[forward(), backward()].concat())
}

fn run(program: &Program, budget: u64, memory: Memory) -> Outcome {
    let setting = Setting {
        policy: Eviction::Selective,
        budget: Budget::Bytes(Bytes(budget)),
        memory,
        ..Setting::default()
    };
    let base = program.base().expect("events that can be replayed");
    program
        .run(&base, &setting)
        .expect("events that can be replayed")
}

#[test]
fn the_core_is_dropped_and_runs_again_once() {
    let outcome = run(&layer(), 10_000, Memory::Fungible);
    let counters = outcome.counters;
    assert_eq!(outcome.status, Status::Ok);
    assert_eq!((counters.replays, counters.replayed_cost.0), (7, CORE));
    // The softmax, what dropout drew, and what it made of the softmax.
    assert_eq!(counters.evictions, 3);
}

#[test]
fn between_forward_and_backward_pass_nothing_of_the_core_is_there() {
    let peak_of_two = |between: &[Event]| {
        let program = program(&[forward(), between.to_vec(), backward()].concat());
        let base = program.base().expect("sound");
        (
            run(&program, 10_000, Memory::Fungible).peak.0,
            base.memory.0,
        )
    };
    // A large op in the middle of the step: x, w, q, k, v, context, out and itself; of a plain step softmax, dropout
    // and both too.
    let large = [
        op("aten.relu.default", &[OUT], 50, fresh(5000), 1),
        release(50),
    ];
    let held = WIDE * 6 + PARAMETER;
    assert_eq!(peak_of_two(&large), (held + 5000, held + 3 * SCORES + 5000));
}

#[test]
fn a_budget_is_met_or_not_and_changes_nothing() {
    let program = layer();
    let peak = run(&program, 10_000, Memory::Fungible).peak.0;
    for memory in [Memory::Fungible, Memory::Arena(Arena::default())] {
        assert_eq!(run(&program, 10_000, memory).counters.replays, 7);
        assert_eq!(run(&program, peak - 1, memory).status, Status::Oom);
        assert!(run(&program, peak - 1, memory).peak.0 < peak);
    }
    let exact = run(&program, peak, Memory::Fungible);
    assert_eq!((exact.status, exact.peak.0), (Status::Ok, peak));
}

#[test]
fn what_other_layers_read_too_is_held_and_not_computed_again() {
    // The mask goes into a second core, so it is an input of both.
    let mut events = forward();
    events.retain(|event| !matches!(event, Event::Release { tensor: MASK }));
    events.extend([
        op("mm", &[OUT, W], 52, fresh(WIDE), 1000),
        op("mm", &[OUT, W], 53, fresh(WIDE), 1000),
        op("bmm", &[52, 53], 54, fresh(SCORES), 1),
        op("add", &[54, MASK], 55, fresh(SCORES), 1),
        release(54),
        release(MASK),
        op("_softmax", &[55], 56, fresh(SCORES), 1),
        release(55),
        op("bmm", &[56, 53], 57, fresh(WIDE), 1000),
    ]);
    events.push(op("mse_loss_backward", &[57], 158, fresh(WIDE), 1000));
    events.push(op("bmm", &[56, 158], 159, fresh(WIDE), 1000));
    events.extend(
        backward()
            .into_iter()
            .skip(1)
            .filter(|event| !matches!(event, Event::Release { tensor: OUT })),
    );
    events.retain(|event| !matches!(event, Event::Release { tensor: 113 }));
    for event in &mut events {
        if let Event::Op { inputs, .. } = event {
            inputs
                .iter_mut()
                .filter(|input| **input == 113)
                .for_each(|input| *input = 159);
        }
    }
    let counters = run(&program(&events), 10_000, Memory::Fungible).counters;
    assert_eq!(
        (counters.replays, counters.replayed_cost.0),
        (6 + 3, CORE - 2 + 3)
    );
}

#[test]
fn a_fused_core_is_dropped_as_a_whole() {
    let fused = "aten._scaled_dot_product_flash_attention_for_cpu";
    let program = program(&[
        constant(X, WIDE),
        constant(W, PARAMETER),
        op("mm", &[X, W], Q, fresh(WIDE), 1000),
        op(
            &format!("{fused}.default"),
            &[Q, Q, Q],
            CONTEXT,
            fresh(SCORES),
            7,
        ),
        op("mm", &[CONTEXT, W], OUT, fresh(WIDE), 1000),
        op(
            &format!("{fused}_backward.default"),
            &[OUT, Q, CONTEXT],
            20,
            fresh(WIDE),
            1000,
        ),
    ]);
    let counters = run(&program, 10_000, Memory::Fungible).counters;
    assert_eq!((counters.replayed_cost.0, counters.evictions), (7, 1));
}

#[test]
fn what_is_no_attention_is_told() {
    let gate = |softmax: &str, right: u64| {
        program(&[
            constant(X, WIDE),
            constant(W, PARAMETER),
            op("mm", &[X, W], Q, fresh(WIDE), 1),
            op(
                "bmm",
                &[Q, if right == W { W } else { Q }],
                3,
                fresh(WIDE),
                1,
            ),
            op(softmax, &[3], 4, fresh(WIDE), 1),
            op("bmm", &[4, Q], 5, fresh(WIDE), 1),
        ])
        .check_attention()
    };
    assert_eq!(gate("_softmax", Q), Ok(()));
    assert_eq!(gate("_softmax", W), Err(NoAttention::Absent));
    assert_eq!(gate("_log_softmax", Q), Err(NoAttention::Absent));
    let unnamed = program(&[constant(X, WIDE), op("f", &[X], Q, fresh(WIDE), 1)]);
    assert_eq!(unnamed.check_attention(), Err(NoAttention::Unnamed));
    for told in [NoAttention::Absent, NoAttention::Unnamed] {
        let message = told.to_string();
        assert!(
            message.contains("sar")
                && message.contains("another policy")
                && !message.contains('\n'),
            "{message}"
        );
    }
}

/// The cost of the ops of the recorded GPT that make masks, scores, softmax and dropout, found by their order alone:
/// from the mask of a layer on until the second product, without what scales and copies queries, keys and values.
fn cost_of_cores(path: &Path) -> (u64, u64) {
    let (mut ops, mut cost, mut products) = (0, 0, 2);
    for event in remat_trace::open(path).expect("a trace") {
        let Event::Op {
            name, cost: each, ..
        } = event.expect("an event")
        else {
            continue;
        };
        let before = products;
        match name.as_str() {
            "aten.ones.default" => products = 0,
            "aten.bmm.default" => products += 1,
            _ => {}
        }
        let skipped = [
            "aten.mul.Scalar",
            "aten.clone.default",
            "aten._unsafe_view.default",
            "aten.empty_like.default",
        ];
        if products < 2 && before.min(products) < 2 && !skipped.contains(&name.as_str()) {
            ops += 1;
            cost += each;
        }
    }
    (ops, cost)
}

#[test]
fn the_recorded_gpt_recomputes_its_attention_and_nothing_else() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces/gpt.trace.zst");
    let program = Program::open(&path).expect("a trace");
    let base = program.base().expect("sound");
    let (ops, cost) = cost_of_cores(&path);
    let outcome = run(&program, base.memory.0, Memory::Arena(Arena::default()));
    let counters = outcome.counters;
    assert_eq!(outcome.status, Status::Ok);
    // Four layers, two steps; of each three storages of 4 MiB, and two scalars that masks are made of.
    assert_eq!((counters.replays, counters.replayed_cost.0), (ops, cost));
    assert_eq!((ops, counters.evictions), (8 * 11, 8 * 5));
    assert_eq!(outcome.clock, 1 + base.cost.0 + cost);
    assert!(
        base.memory.0 - outcome.peak.0 > 3 * 3 * (4 << 20),
        "{:?}",
        outcome.peak
    );
}
