//! `dtr-anc` counts unreferenced storages less: of two values that a replay brought back, it evicts the one without
//! references, though that one costs more.

use remat_core::*;

const DEVICE: DeviceId = DeviceId(0);

fn run(engine: &mut Engine, input: TensorId, bytes: u64, cost: u64) -> Result<TensorId, Error> {
    let op = engine.begin(&OpSpec {
        inputs: &[input],
        outputs: &[Output::Fresh {
            bytes: Bytes(bytes),
            device: DEVICE,
        }],
        workspace: Bytes(0),
        workspace_device: DEVICE,
        replay: Replay::Allowed,
    })?;
    let report = Finished {
        cost: Cost(cost),
        bytes: None,
    };
    engine.finish(op, &report)?;
    Ok(engine.outputs(op)[0])
}

/// Which of the two stays when room is made for a third: the unreferenced one, the referenced one.
fn stay(policy: &str) -> Result<(bool, bool), Box<dyn std::error::Error>> {
    let mut engine = Engine::new(Config {
        budgets: vec![Some(Bytes(30))],
        policy: policy.parse()?,
        ..Config::default()
    });
    let weights = engine.constant(Bytes(1), DEVICE)?;
    let unreferenced = run(&mut engine, weights, 10, 1_000)?;
    let held = run(&mut engine, unreferenced, 10, 500)?;
    let between = engine.storage(unreferenced).expect("a known tensor");
    engine.release(unreferenced)?;
    let other = run(&mut engine, weights, 25, 1)?;
    assert!(!engine.is_resident(between) && !engine.is_defined(held));
    engine.release(other)?;
    engine.ensure(&[held])?;
    assert!(engine.is_resident(between) && engine.is_defined(held));
    // Time passes, so that both are about equally stale.
    let passing = run(&mut engine, weights, 1, 1_000_000)?;
    engine.release(passing)?;
    run(&mut engine, weights, 15, 1)?;
    Ok((engine.is_resident(between), engine.is_defined(held)))
}

#[test]
fn an_unreferenced_value_goes_first() -> Result<(), Box<dyn std::error::Error>> {
    assert_eq!(stay("dtr-local")?, (true, false));
    assert_eq!(stay("dtr-anc")?, (false, true));
    Ok(())
}
