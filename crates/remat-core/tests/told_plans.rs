//! Actions of plans that a front end tells one by one, and addresses for what is told next.

use remat_core::{
    Arena, Bytes, Config, Cost, DeviceId, Engine, Error, Finished, Memory, OpId, OpSpec, Output,
    Planned, Replay, Step, StorageId, TensorId,
};

fn engine(budget: u64, memory: Memory) -> Engine {
    Engine::new(Config {
        budgets: vec![Some(Bytes(budget))],
        memory,
        ..Config::default()
    })
}

fn arena(budget: u64) -> Engine {
    engine(budget, Memory::Arena(Arena::default()))
}

fn run(engine: &mut Engine, inputs: &[TensorId], bytes: u64, workspace: u64) -> OpId {
    let device = DeviceId(0);
    let bytes = Bytes(bytes);
    let spec = OpSpec {
        inputs,
        outputs: &[Output::Fresh { bytes, device }],
        workspace: Bytes(workspace),
        workspace_device: device,
        replay: Replay::Allowed,
    };
    let op = engine.begin(&spec).unwrap();
    let report = Finished {
        cost: Cost(5),
        bytes: None,
    };
    engine.finish(op, &report).unwrap();
    op
}

fn made(engine: &Engine, op: OpId) -> StorageId {
    engine.storage(engine.outputs(op)[0]).unwrap()
}

fn lies(engine: &Engine, op: OpId) -> Option<u64> {
    engine.address(made(engine, op))
}

#[test]
fn what_does_not_fit_or_cannot_be_leaves_the_state() {
    let mut engine = engine(200, Memory::Fungible);
    let weights = engine.constant(Bytes(10), DeviceId(0)).unwrap();
    let first = run(&mut engine, &[weights], 100, 0);
    let input = engine.outputs(first)[0];
    let second = run(&mut engine, &[input], 80, 0);
    engine
        .perform(Planned::Drop(made(&engine, second)))
        .unwrap();
    engine.perform(Planned::Drop(made(&engine, first))).unwrap();
    // Its input is not there: the engine does not plan on.
    let before = format!("{engine:?}");
    let refusal = engine.perform(Planned::Run(second));
    assert!(matches!(refusal, Err(Error::Protocol(_))), "{refusal:?}");
    assert_eq!(format!("{engine:?}"), before);
    // A constant takes the room.
    engine.constant(Bytes(150), DeviceId(0)).unwrap();
    let before = format!("{engine:?}");
    let refusal = engine.perform(Planned::Run(first));
    let needed = Bytes(10 + 150 + 100);
    assert!(
        matches!(refusal, Err(Error::Budget { needed: found, .. }) if found == needed),
        "{refusal:?}"
    );
    assert_eq!(format!("{engine:?}"), before);
    for unknown in [
        Planned::Drop(StorageId(99)),
        Planned::Run(OpId(99)),
        Planned::RunInPlace(OpId(99)),
    ] {
        assert!(matches!(engine.perform(unknown), Err(Error::Protocol(_))));
    }
    assert_eq!(format!("{engine:?}"), before);
}

#[test]
fn what_is_there_or_must_stay_is_left() {
    let mut engine = engine(200, Memory::Fungible);
    let weights = engine.constant(Bytes(10), DeviceId(0)).unwrap();
    let op = run(&mut engine, &[weights], 100, 0);
    let constant = engine.storage(weights).unwrap();
    for left in [Planned::Run(op), Planned::Drop(constant)] {
        engine.perform(left).unwrap();
        assert_eq!(engine.steps(), [], "{left:?}");
    }
}

#[test]
fn an_action_that_was_not_performed_is_taken_back() {
    let mut engine = engine(200, Memory::Fungible);
    let weights = engine.constant(Bytes(10), DeviceId(0)).unwrap();
    let op = run(&mut engine, &[weights], 100, 0);
    // The counters go on, as those of evictions by the policy do.
    let state = |engine: &Engine| {
        format!("{engine:?}")
            .split_once('\n')
            .map(|at| at.1.to_owned())
    };
    let before = state(&engine);
    engine.perform(Planned::Drop(made(&engine, op))).unwrap();
    assert_eq!(engine.steps(), [Step::Evict(made(&engine, op))]);
    engine.abort(0);
    assert!(engine.is_resident(made(&engine, op)));
    assert_eq!(state(&engine), before);
}

#[test]
fn blocks_lie_where_they_are_planned_if_that_is_free() {
    let mut engine = arena(1024);
    engine.place_next(&[960]);
    let weights = engine.constant(Bytes(10), DeviceId(0)).unwrap();
    // The result, and the workspace, which is larger.
    engine.place_next(&[256, 512]);
    let op = run(&mut engine, &[weights], 64, 128);
    assert_eq!(lies(&engine, op), Some(256));
    engine.perform(Planned::Drop(made(&engine, op))).unwrap();
    engine.place_next(&[320, 0]);
    engine.perform(Planned::Run(op)).unwrap();
    assert_eq!(lies(&engine, op), Some(320));
    // Addresses hold for one call: the next block lies as low as any.
    let other = run(&mut engine, &[weights], 64, 0);
    assert_eq!(lies(&engine, other), Some(0));
    for nowhere in [320, 1, 1 << 40, u64::MAX] {
        engine.place_next(&[nowhere]);
        let taken = run(&mut engine, &[weights], 64, 0);
        let address = lies(&engine, taken).unwrap();
        assert!(address < 1024 && address % 64 == 0 && address != 320);
    }
    engine.check().unwrap();
}

#[test]
fn counted_bytes_have_no_addresses() {
    let mut engine = engine(200, Memory::Fungible);
    engine.place_next(&[64]);
    let weights = engine.constant(Bytes(10), DeviceId(0)).unwrap();
    assert_eq!(engine.address(engine.storage(weights).unwrap()), None);
}
