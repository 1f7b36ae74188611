//! Long chains: depth without recursion, and the O(N) bound of DTR theorem 3.1.

use remat_core::*;

const DEVICE: DeviceId = DeviceId(0);
const UNIT: [Output; 1] = [Output::Fresh {
    bytes: Bytes(1),
    device: DEVICE,
}];

fn unit_op(engine: &mut Engine, inputs: &[TensorId]) -> Result<TensorId, Error> {
    let spec = OpSpec {
        inputs,
        outputs: &UNIT,
        workspace: Bytes(0),
        workspace_device: DEVICE,
        replay: Replay::Allowed,
    };
    let op = engine.begin(&spec)?;
    engine.finish(
        op,
        &Finished {
            cost: Cost(1),
            bytes: None,
        },
    )?;
    Ok(engine.outputs(op)[0])
}

fn replay_whole_chain(order: ReplayOrder, length: u64) {
    let mut engine = Engine::new(Config {
        policy: Policy::LRU,
        order,
        ..Config::default()
    });
    let root = engine.constant(Bytes(1), DEVICE).expect("no limit");
    let mut last = root;
    for _ in 0..length {
        let next = unit_op(&mut engine, &[last]).expect("no limit");
        if last != root {
            engine.release(last).expect("held");
        }
        last = next;
    }
    let middle = unit_op(&mut engine, &[root]).expect("no limit");
    engine.release(middle).expect("held");
    engine
        .set_budget(DEVICE, Some(Bytes(1)))
        .expect("all but the constant can go");
    engine.set_budget(DEVICE, Some(Bytes(3))).expect("more");
    engine
        .ensure(&[last])
        .expect("a chain needs two places beside its root");
    let replays = engine
        .steps()
        .iter()
        .filter(|step| matches!(step, Step::Recompute { .. }))
        .count();
    assert_eq!(replays as u64, length);
    assert_eq!(engine.counters().replays, length);
}

#[test]
fn a_chain_of_a_million_evicted_ops_is_replayed() {
    replay_whole_chain(ReplayOrder::Fit, 1_000_000);
}

#[test]
fn a_deep_chain_is_replayed_in_dtrs_order() {
    replay_whole_chain(ReplayOrder::Dtr, 200_000);
}

/// Forward and backward over a chain of `n` unit ops with `2 * ceil(sqrt(n))` places and the heuristic `|e*|`.
fn ops_of_training_step(n: u64, order: ReplayOrder) -> u64 {
    let places = 2 * (n as f64).sqrt().ceil() as u64;
    let budget = Some(Bytes(places));
    let config = Config {
        budgets: vec![budget],
        policy: Policy::E_STAR,
        order,
        ..Config::default()
    };
    let mut engine = Engine::new(config);
    let mut forward = vec![unit_op(&mut engine, &[]).expect("room")];
    for _ in 1..n {
        let last = *forward.last().expect("one at least");
        forward.push(unit_op(&mut engine, &[last]).expect("room"));
    }
    let mut gradient = unit_op(&mut engine, &[forward[n as usize - 1]]).expect("room");
    while let Some(activation) = forward.pop() {
        let next = unit_op(&mut engine, &[gradient, activation]).expect("room");
        engine.release(gradient).expect("held");
        engine.release(activation).expect("held");
        gradient = next;
    }
    let counters = engine.counters();
    counters.first_cost.0 + counters.replayed_cost.0
}

#[test]
fn theorem_3_1_bounds_the_ops_of_a_training_step_linearly() {
    // The paper's size takes a minute without optimization.
    let n = if cfg!(debug_assertions) {
        2_500
    } else {
        10_000
    };
    for order in [ReplayOrder::Dtr, ReplayOrder::Fit] {
        let total = ops_of_training_step(n, order);
        println!("{order:?}: {total} ops for {n}");
        assert!(total <= 5 * n, "{order:?}: {total} ops");
    }
}
