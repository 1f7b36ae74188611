//! Ops of a planned step whose results nobody need take note of, as they are gone again.

use super::program::{DEVICE, LAYERS, Program, fresh};
use super::{TIGHT, guide_without_records, train_with_forms};
use remat_core::*;

/// The result of an op.
#[derive(Clone, Copy)]
enum Value {
    Told(TensorId),
    /// The op of this number passed, and the program took note of its result.
    Passed(u64),
    /// The program took no note of it.
    Transient,
}

/// A step, of which some gradients may be held to its end and read before. Returns how many ops were transient.
fn train(program: &mut Program, held: usize) -> Result<usize, Error> {
    let mut transient = 0;
    let mut op = |program: &mut Program, form: u64, inputs: &mut [Value]| {
        let room = program.engine.memory(DEVICE).0 + 200 <= TIGHT; // nobody may have taken note of what it reads
        if room && program.engine.may_pass(form) {
            let noted = program.engine.next_transient() != Some(form);
            let (number, _) = program.engine.pass(program.cost, 1)?;
            if noted {
                program.engine.note_left(number, Some(1));
                return Ok(Value::Passed(number));
            }
            transient += 1;
            return Ok(Value::Transient);
        }
        for value in inputs.iter_mut() {
            tell(program, value)?;
        }
        let inputs = inputs.iter().filter_map(|value| match *value {
            Value::Told(tensor) => Some(tensor),
            _ => None,
        });
        program.engine.note_form(form);
        let inputs: Vec<TensorId> = inputs.collect();
        program.op(&inputs, fresh(100)).map(Value::Told)
    };
    let weights = Value::Told(program.weights);
    let mut layers = vec![op(program, 1, &mut [weights, weights])?];
    while layers.len() < LAYERS {
        let last = layers[layers.len() - 1];
        layers.push(op(program, 1, &mut [weights, last])?);
    }
    let mut gradient = op(program, 2, &mut [weights])?;
    let mut kept = Vec::new();
    while let Some(layer) = layers.pop() {
        let mut read = [gradient, layer];
        let next = op(program, 3, &mut read)?;
        let [gradient_read, layer] = read;
        release(program, layer)?;
        if layers.len() < 12 && kept.len() < held {
            kept.push(gradient_read);
        } else {
            release(program, gradient_read)?;
        }
        gradient = next;
        if layers.len() == 4 {
            kept.iter_mut().try_for_each(|value| tell(program, value))?;
        }
    }
    kept.push(gradient);
    kept.into_iter()
        .try_for_each(|value| release(program, value))?;
    Ok(transient)
}

/// Tells the engine of a value.
fn tell(program: &mut Program, value: &mut Value) -> Result<(), Error> {
    *value = match *value {
        Value::Passed(op) => Value::Told(program.engine.constant_of(op, 0, Bytes(100), DEVICE)?),
        Value::Transient => {
            program.engine.note_asked();
            Value::Told(program.engine.constant_elsewhere(Bytes(100), DEVICE)?)
        }
        told => told,
    };
    Ok(())
}

fn release(program: &mut Program, value: Value) -> Result<(), Error> {
    match value {
        Value::Told(tensor) => program.engine.release(tensor)?,
        Value::Passed(op) => program.engine.note_gone(op),
        Value::Transient => {}
    }
    Ok(())
}

/// A program that follows a plan in which gradients need no record, for some steps.
fn followed() -> Program {
    let mut program = Program::new(TIGHT);
    program.engine.forgo_records();
    let recorded = program.learn(train_with_forms).expect("a step");
    program.engine.follow(guide_without_records(&recorded));
    for _ in 0..5 {
        steps(&mut program, 1, 0);
    }
    program
}

/// Transient ops of each of some steps.
fn steps(program: &mut Program, count: usize, held: usize) -> Vec<usize> {
    let mut found = Vec::new();
    for _ in 0..count {
        program
            .step(|program| {
                found.push(train(program, held)?);
                Ok(())
            })
            .expect("room");
    }
    found
}

#[test]
fn ops_whose_results_were_gone_again_are_transient() {
    let mut program = followed();
    let rest = program.engine.memory(DEVICE);
    let (before, cost) = (
        program.engine.guided(),
        program.engine.counters().first_cost,
    );
    let found = steps(&mut program, 4, 0);
    let after = program.engine.guided();
    assert!(found.iter().all(|&count| count > LAYERS / 4), "{found:?}");
    // They are ops of the step as others are.
    assert_eq!(after.steps, before.steps + 4);
    assert_eq!(after.departures, before.departures);
    let ops = 4 * (2 * LAYERS as u64 + 1);
    let took = program.engine.counters().first_cost.0 - cost.0;
    assert_eq!(took, ops * program.cost.0);
    assert_eq!(program.engine.memory(DEVICE), rest);
    assert!(program.engine.peak(DEVICE).0 <= TIGHT);
}

#[test]
fn results_that_are_asked_for_are_noted_in_the_next_step() {
    let mut program = followed();
    let usual = steps(&mut program, 1, 0)[0];
    let asked = steps(&mut program, 1, 3)[0];
    assert!(asked > 0);
    assert_eq!(steps(&mut program, 1, 0), [0]);
    assert_eq!(steps(&mut program, 3, 0), [usual; 3]);
    // Those that stay are found out, and the others are transient.
    assert_eq!(steps(&mut program, 2, 3)[1], 0);
    let fewer = steps(&mut program, 3, 3);
    assert!(
        fewer.iter().all(|count| (1..usual).contains(count)),
        "{fewer:?} of {usual}"
    );
}

/// A program whose results stay at one time and not at another learns nothing by being asked.
#[test]
fn all_results_are_noted_once_three_steps_in_a_row_asked() {
    let mut program = followed();
    for _ in 0..3 {
        assert!(steps(&mut program, 1, 3)[0] > 0);
        assert_eq!(steps(&mut program, 1, 0), [0]);
    }
    assert_eq!(steps(&mut program, 6, 0), [0; 6]);
}

/// A plan that saves little is tried: for some steps its actions are left out.
#[test]
fn steps_without_the_plan_are_none_that_were_left() {
    let mut program = followed();
    let usual = steps(&mut program, 1, 0)[0];
    let before = program.engine.guided();
    let mut found = Vec::new();
    while program.engine.guided().steps < before.steps + 20 {
        found.extend(steps(&mut program, 1, 0));
        if let Some(StepMark::Ended(guide)) = program.engine.step_mark() {
            program.engine.step_took(guide, 1_000);
        }
    }
    // Three times three in a row, and what is transient is known after each of them.
    let without = found.iter().filter(|&&count| count == 0).count();
    assert_eq!(without, 9, "{found:?}");
    assert_eq!(program.engine.guided().given_up, before.given_up);
    assert_eq!(steps(&mut program, 3, 0), [usual; 3]);
}

#[test]
fn a_constant_that_has_another_size_is_recorded_as_another_one() {
    let recorded = [false, true].map(|resizes| {
        let mut program = Program::new(TIGHT + 100);
        let recorded = program.learn(|program| {
            let started = program.op(&[program.weights], fresh(10))?;
            let mut others = program.engine.constant_elsewhere(Bytes(50), DEVICE)?;
            let layers = program.forward(program.weights)?;
            let before = program.engine.memory(DEVICE);
            if resizes {
                program.engine.resize_elsewhere(others, Bytes(80))?;
            } else {
                program.engine.release(others)?;
                others = program.engine.constant_elsewhere(Bytes(80), DEVICE)?;
            }
            assert_eq!(program.engine.memory(DEVICE).0, before.0 + 30);
            program.backward(layers)?;
            program.engine.release(others)?;
            program.engine.release(started)
        });
        // But for the number of a storage that is there in the beginning.
        let events = recorded.expect("a step").events;
        let during = events
            .into_iter()
            .filter(|told| !matches!(told, Told::There { origin, .. } if origin.is_some()));
        during.collect::<Vec<_>>()
    });
    assert!(recorded[0] == recorded[1]);
    let resized = |told: &&Told| {
        matches!(
            told,
            Told::There {
                bytes: Bytes(80),
                ..
            }
        )
    };
    assert_eq!(recorded[0].iter().filter(resized).count(), 1);
}

#[test]
fn only_a_constant_that_nothing_read_has_another_size() {
    let mut program = Program::new(TIGHT);
    let others = program
        .engine
        .constant_elsewhere(Bytes(50), DEVICE)
        .expect("no room is needed");
    let made = program.op(&[program.weights], fresh(10)).expect("room");
    let engine = &mut program.engine;
    for (tensor, bytes) in [(made, 20), (program.weights, 20), (others, u64::MAX)] {
        let memory = engine.memory(DEVICE);
        assert!(engine.resize_elsewhere(tensor, Bytes(bytes)).is_err());
        assert_eq!(engine.memory(DEVICE), memory);
    }
    engine.retain(others).expect("known");
    assert!(engine.resize_elsewhere(others, Bytes(20)).is_err());
}
