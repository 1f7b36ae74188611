//! The effect of the last release under each deallocation policy (DTR appendix C.5).

use remat_core::*;

const DEVICE: DeviceId = DeviceId(0);

fn engine(dealloc: Dealloc) -> Engine {
    Engine::new(Config {
        dealloc,
        lineage: Lineage::Keep,
        ..Config::default()
    })
}

fn op(engine: &mut Engine, input: TensorId, bytes: u64) -> TensorId {
    join(engine, &[input], bytes)
}

fn join(engine: &mut Engine, inputs: &[TensorId], bytes: u64) -> TensorId {
    let spec = OpSpec {
        inputs,
        outputs: &[Output::Fresh {
            bytes: Bytes(bytes),
            device: DEVICE,
        }],
        workspace: Bytes(0),
        workspace_device: DEVICE,
        replay: Replay::Allowed,
    };
    let op = engine.begin(&spec).expect("no limit");
    let finished = Finished {
        cost: Cost(1),
        bytes: None,
    };
    engine.finish(op, &finished).expect("begun");
    engine.outputs(op)[0]
}

/// A constant of 100 bytes, 20 bytes computed from it, 3 bytes computed from those.
fn chain(dealloc: Dealloc) -> (Engine, [TensorId; 3]) {
    let mut engine = engine(dealloc);
    let root = engine.constant(Bytes(100), DEVICE).expect("no limit");
    let middle = op(&mut engine, root, 20);
    let last = op(&mut engine, middle, 3);
    (engine, [root, middle, last])
}

#[test]
fn eager_eviction_keeps_constants_and_what_was_evicted_can_come_back() {
    let (mut engine, [root, middle, last]) = chain(Dealloc::Eager);
    engine.release(middle).expect("held");
    engine.release(root).expect("held");
    assert_eq!(engine.memory(DEVICE), Bytes(103));
    assert!(!engine.is_pinned(engine.storage(last).expect("a known tensor")));
}

#[test]
fn banishing_frees_constants_too_and_pins_what_was_computed_from_them() {
    let (mut engine, [root, middle, last]) = chain(Dealloc::Banish);
    engine.release(root).expect("held");
    assert_eq!(engine.memory(DEVICE), Bytes(23));
    assert!(engine.is_pinned(engine.storage(middle).expect("a known tensor")));
    engine.release(middle).expect("held");
    assert_eq!(engine.memory(DEVICE), Bytes(3));
    assert!(engine.is_pinned(engine.storage(last).expect("a known tensor")));
}

#[test]
fn banishing_waits_for_an_evicted_dependent_to_come_back() {
    let (mut engine, [root, middle, last]) = chain(Dealloc::Banish);
    engine
        .set_budget(DEVICE, Some(Bytes(103)))
        .expect("room for two");
    assert!(
        !engine.is_defined(middle),
        "large for its cost: it goes first"
    );
    engine.release(root).expect("held");
    assert_eq!(
        engine.memory(DEVICE),
        Bytes(103),
        "needed to compute the middle"
    );
    engine.set_budget(DEVICE, None).expect("more");
    let more = op(&mut engine, middle, 1);
    assert_eq!(engine.memory(DEVICE), Bytes(24), "the middle came back");
    assert!(engine.is_defined(middle) && engine.is_defined(more) && engine.is_defined(last));
}

#[test]
fn ignoring_releases_keeps_all() {
    let (mut engine, [root, middle, _]) = chain(Dealloc::Ignore);
    engine.release(root).expect("held");
    engine.release(middle).expect("held");
    assert_eq!(engine.memory(DEVICE), Bytes(123));
}

/// A mean carried from step to step, each step's gradient dropped after it.
fn carried(engine: &mut Engine, steps: usize) -> (Vec<TensorId>, TensorId) {
    let mut gradients = Vec::new();
    let mut mean = None;
    for _ in 0..steps {
        let gradient = engine.constant(Bytes(100), DEVICE).expect("no limit");
        let next = match mean {
            None => op(engine, gradient, 100),
            Some(mean) => {
                let next = join(engine, &[mean, gradient], 100);
                engine.release(mean).expect("held");
                next
            }
        };
        mean = Some(next);
        gradients.push(gradient);
    }
    (gradients, mean.expect("a step"))
}

#[test]
fn constants_behind_one_carried_tensor_can_be_banished_for_it() {
    let mut engine = Engine::new(Config::default());
    let (gradients, mean) = carried(&mut engine, 5);
    // A sixth constant, with more bytes hanging on it than it has.
    let data = engine.constant(Bytes(100), DEVICE).expect("no limit");
    let hidden = op(&mut engine, data, 101);
    let mut asked = gradients.clone();
    asked.push(data);
    let plan = engine.plan_banish(&asked).expect("constants");
    assert_eq!(plan.constants, 5);
    assert_eq!(plan.tensors, [mean]);
    assert_eq!((plan.freed, plan.pinned), (Bytes(500), Bytes(100)));
    assert_eq!(engine.memory(DEVICE), Bytes(801));
    engine.pin(mean).expect("resident");
    for gradient in gradients {
        engine.release(gradient).expect("held");
    }
    assert_eq!(engine.memory(DEVICE), Bytes(301));
    assert!(!engine.is_pinned(engine.storage(hidden).expect("a known tensor")));
}

/// Parameters of a program that puts new ones in their place, each from all old ones: one alone frees less than the new
/// ones take, all of them as much.
#[test]
fn constants_go_for_as_many_bytes_of_what_took_their_place() {
    let mut engine = Engine::new(Config::default());
    let old: Vec<TensorId> = (0..3)
        .map(|_| engine.constant(Bytes(100), DEVICE).expect("no limit"))
        .collect();
    let new: Vec<TensorId> = (0..3).map(|_| join(&mut engine, &old, 100)).collect();
    let plan = engine.plan_banish(&old).expect("constants");
    assert_eq!(plan.constants, 3);
    assert_eq!(plan.tensors, new);
    assert_eq!((plan.freed, plan.pinned), (Bytes(300), Bytes(300)));
    assert_eq!(
        engine.plan_banish(&old[..2]).expect("constants").constants,
        0
    );
}

#[test]
fn only_constants_can_be_banished() {
    let mut engine = Engine::new(Config::default());
    let (gradients, mean) = carried(&mut engine, 1);
    assert!(matches!(
        engine.plan_banish(&[mean]),
        Err(Error::Protocol(_))
    ));
    engine.release(mean).expect("held");
    engine.release(gradients[0]).expect("held");
    assert!(matches!(
        engine.plan_banish(&gradients),
        Err(Error::Protocol(_))
    ));
}
