//! `dtr-anc` counts unreferenced storages less: of two values that a replay brought back, it evicts the one without
//! references, though that one costs more. It counts for more while something is missing that was made from it and to
//! which the program refers.

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

/// Makes a value of 10 bytes that nothing refers to any more, and one from it that the program holds. Both are there.
fn unreferenced_and_held(
    engine: &mut Engine,
    weights: TensorId,
) -> Result<(TensorId, TensorId), Error> {
    let unreferenced = run(engine, weights, 10, 1_000)?;
    let held = run(engine, unreferenced, 10, 1)?;
    engine.release(unreferenced)?;
    let other = run(engine, weights, 25, 1)?;
    engine.release(other)?;
    engine.ensure(&[held])?;
    Ok((unreferenced, held))
}

#[test]
fn an_unreferenced_value_stays_while_what_it_makes_is_missing()
-> Result<(), Box<dyn std::error::Error>> {
    let mut engine = Engine::new(Config {
        budgets: vec![Some(Bytes(32))],
        policy: "dtr-anc".parse()?,
        ..Config::default()
    });
    let weights = engine.constant(Bytes(1), DEVICE)?;
    let (unreferenced, held) = unreferenced_and_held(&mut engine, weights)?;
    let between = engine.storage(unreferenced).expect("a known tensor");
    let rival = run(&mut engine, weights, 10, 100)?;
    let passing = run(&mut engine, weights, 1, 1_000_000)?;
    engine.release(passing)?;
    // What it makes is cheapest, and goes first.
    let room = run(&mut engine, weights, 10, 1)?;
    assert!(engine.is_resident(between) && engine.is_defined(rival) && !engine.is_defined(held));
    engine.release(room)?;
    // From now on it counts an 8th, which is more than its rival.
    let room = run(&mut engine, weights, 20, 1)?;
    assert!(engine.is_resident(between) && !engine.is_defined(rival));
    engine.release(room)?;
    // With that back, it counts a 32nd again.
    engine.ensure(&[held, rival])?;
    let passing = run(&mut engine, weights, 1, 1_000_000)?;
    engine.release(passing)?;
    run(&mut engine, held, 10, 1)?;
    assert!(!engine.is_resident(between) && engine.is_defined(rival));
    Ok(())
}

#[test]
fn an_unreferenced_value_counts_less_once_nobody_wants_what_it_makes()
-> Result<(), Box<dyn std::error::Error>> {
    let mut engine = Engine::new(Config {
        budgets: vec![Some(Bytes(32))],
        policy: "dtr-anc".parse()?,
        ..Config::default()
    });
    let weights = engine.constant(Bytes(1), DEVICE)?;
    let (unreferenced, held) = unreferenced_and_held(&mut engine, weights)?;
    let between = engine.storage(unreferenced).expect("a known tensor");
    let result = run(&mut engine, held, 1, 1_000)?;
    let rival = run(&mut engine, weights, 9, 100)?;
    let passing = run(&mut engine, weights, 1, 1_000_000)?;
    engine.release(passing)?;
    let room = run(&mut engine, weights, 10, 1)?;
    assert!(engine.is_resident(between) && engine.is_defined(rival) && !engine.is_defined(held));
    engine.release(room)?;
    // A search finds that it counts an 8th now, and takes what is cheaper.
    let cheap = run(&mut engine, weights, 10, 1)?;
    let passing = run(&mut engine, weights, 1, 20_000)?;
    engine.release(passing)?;
    let room = run(&mut engine, weights, 5, 1)?;
    assert!(engine.is_resident(between) && engine.is_defined(rival) && !engine.is_defined(cheap));
    engine.release(room)?;
    // Nobody refers to it any more, but its record stays: the result may be made again.
    engine.release(held)?;
    run(&mut engine, weights, 20, 1)?;
    assert!(!engine.is_resident(between) && engine.is_defined(rival));
    assert!(engine.is_defined(result));
    Ok(())
}
