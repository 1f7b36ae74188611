//! What the last reference's going does under each deallocation policy (DTR appendix C.5).

use remat_core::*;

const POOL: PoolId = PoolId(0);

fn engine(dealloc: Dealloc) -> Engine {
    Engine::new(Config {
        dealloc,
        lineage: Lineage::Keep,
        ..Config::default()
    })
}

fn op(engine: &mut Engine, input: TensorId, bytes: u64) -> TensorId {
    let spec = OpSpec {
        inputs: &[input],
        outputs: &[Output::Fresh {
            bytes: Bytes(bytes),
            pool: POOL,
        }],
        workspace: Bytes(0),
        workspace_pool: POOL,
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
    let root = engine.constant(Bytes(100), POOL).expect("no limit");
    let middle = op(&mut engine, root, 20);
    let last = op(&mut engine, middle, 3);
    (engine, [root, middle, last])
}

#[test]
fn eager_eviction_keeps_constants_and_what_was_evicted_can_come_back() {
    let (mut engine, [root, middle, last]) = chain(Dealloc::Eager);
    engine.release(middle).expect("held");
    engine.release(root).expect("held");
    assert_eq!(engine.memory(POOL), Bytes(103));
    assert!(!engine.is_pinned(engine.storage(last)));
}

#[test]
fn banishing_frees_constants_too_and_pins_what_was_computed_from_them() {
    let (mut engine, [root, middle, last]) = chain(Dealloc::Banish);
    engine.release(root).expect("held");
    assert_eq!(engine.memory(POOL), Bytes(23));
    assert!(engine.is_pinned(engine.storage(middle)));
    engine.release(middle).expect("held");
    assert_eq!(engine.memory(POOL), Bytes(3));
    assert!(engine.is_pinned(engine.storage(last)));
}

#[test]
fn banishing_waits_for_an_evicted_dependent_to_come_back() {
    let (mut engine, [root, middle, last]) = chain(Dealloc::Banish);
    engine
        .set_budget(POOL, Some(Bytes(103)))
        .expect("room for two");
    assert!(
        !engine.is_defined(middle),
        "large for its cost: it goes first"
    );
    engine.release(root).expect("held");
    assert_eq!(
        engine.memory(POOL),
        Bytes(103),
        "needed to compute the middle"
    );
    engine.set_budget(POOL, None).expect("more");
    let more = op(&mut engine, middle, 1);
    assert_eq!(engine.memory(POOL), Bytes(24), "the middle came back");
    assert!(engine.is_defined(middle) && engine.is_defined(more) && engine.is_defined(last));
}

#[test]
fn ignoring_releases_keeps_all() {
    let (mut engine, [root, middle, _]) = chain(Dealloc::Ignore);
    engine.release(root).expect("held");
    engine.release(middle).expect("held");
    assert_eq!(engine.memory(POOL), Bytes(123));
}
