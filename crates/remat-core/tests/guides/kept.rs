//! Results that a plan keeps after the program let go of them.

use super::TIGHT;
use super::program::{DEVICE, LAYERS, Program, fresh, guide};
use remat_core::*;

/// A step in which a value is read once and let go of. Its reader is read again after the layers.
fn with_a_value_let_go_of(program: &mut Program) -> Result<(), Error> {
    let value = program.op(&[program.weights], fresh(100))?;
    let reader = program.op(&[value], fresh(100))?;
    program.engine.release(value)?;
    let layers = program.forward(program.weights)?;
    let sum = program.op(&[reader], fresh(100))?;
    program.engine.release(reader)?;
    program.engine.release(sum)?;
    program.backward(layers)
}

/// A program that follows a plan which drops the reader, makes it again, and then drops the value.
fn with_a_value_kept(kept: Vec<(u32, u32)>) -> Program {
    let mut program = Program::new(TIGHT + 400);
    let recorded = program.learn(with_a_value_let_go_of).expect("a step");
    let sum = LAYERS as u32 + 2;
    let drop = |op| GuideAction::Drop { op, output: 0 };
    // The policy has nothing to evict before the reader runs again.
    let layers = (2..22).map(|layer| (layer + 2, drop(layer)));
    let reader = [(10, drop(1)), (sum, GuideAction::Run(1)), (sum, drop(0))];
    let actions: Vec<_> = layers.chain(reader).collect();
    let guide = guide(&recorded, &actions);
    program
        .engine
        .follow(guide.with_kept(kept).expect("an op of the step"));
    program
}

#[test]
fn a_result_that_a_plan_keeps_is_there_until_the_plan_drops_it() {
    for kept in [vec![(0, 0)], vec![]] {
        let is_kept = !kept.is_empty();
        let mut program = with_a_value_kept(kept);
        for _ in 0..4 {
            let done = program.step(|program| {
                let value = program.op(&[program.weights], fresh(100))?;
                let reader = program.op(&[value], fresh(100))?;
                let storage = program.engine.storage(value).expect("a storage");
                program.engine.release(value)?;
                let there = |program: &Program| program.engine.is_resident(storage);
                assert_eq!(there(program), is_kept);
                let layers = program.forward(program.weights)?;
                assert_eq!(there(program), is_kept);
                let sum = program.op(&[reader], fresh(100))?;
                assert!(!is_kept || !there(program));
                program.engine.release(reader)?;
                program.engine.release(sum)?;
                program.backward(layers)
            });
            done.expect("room");
            if is_kept {
                let sum = LAYERS as u32 + 2;
                assert!(program.replays.contains(&(1, sum)), "{:?}", program.replays);
                assert!(!program.replays.iter().any(|&(op, _)| op == 0));
            }
        }
        let guided = program.engine.guided();
        assert_eq!(guided.refused == 0, is_kept, "{guided:?}");
        assert!(program.engine.peak(DEVICE).0 <= TIGHT + 400);
    }
}

/// Where a front end has not the bytes of what a plan keeps, the value goes with its last reference.
#[test]
fn a_result_that_cannot_be_kept_goes_with_its_last_reference() {
    let mut program = with_a_value_kept(vec![(0, 0)]);
    for _ in 0..2 {
        program.step(with_a_value_let_go_of).expect("room");
    }
    let op = program.begin(&[program.weights], fresh(100), Replay::Allowed);
    let op = op.expect("room");
    let made = program.engine.outputs(op)[0];
    let storage = program.engine.storage(made).expect("a storage");
    assert_eq!(program.engine.kept_results(), [storage]);
    let (cost, bytes) = (Cost(10), None);
    let finished = program.engine.finish(op, &Finished { cost, bytes });
    finished.expect("room");
    let reader = program.op(&[made], fresh(100)).expect("room");
    assert!(program.engine.kept_results().is_empty());
    program.engine.do_not_keep(storage);
    program.engine.release(made).expect("a reference");
    assert!(!program.engine.is_resident(storage));
    program.engine.release(reader).expect("a reference");
}

#[test]
fn what_a_plan_kept_goes_where_the_program_leaves_it() {
    let mut program = with_a_value_kept(vec![(0, 0)]);
    for _ in 0..2 {
        program.step(with_a_value_let_go_of).expect("room");
    }
    let memory = program.engine.memory(DEVICE);
    let mut left = false;
    let departing = program.step(|program| {
        let value = program.op(&[program.weights], fresh(100))?;
        let reader = program.op(&[value], fresh(100))?;
        let storage = program.engine.storage(value).expect("a storage");
        program.engine.release(value)?;
        assert!(program.engine.is_resident(storage));
        let other = program.op(&[program.weights, reader], fresh(7))?;
        left = !program.engine.is_resident(storage);
        program.engine.release(other)?;
        program.engine.release(reader)
    });
    departing.expect("room");
    assert!(left);
    assert_eq!(program.engine.memory(DEVICE), memory);
    for _ in 0..2 {
        program.step(with_a_value_let_go_of).expect("room");
    }
    assert_eq!(program.engine.memory(DEVICE), memory);
}

#[test]
fn results_that_are_kept_rise_and_are_of_the_step() {
    let mut program = Program::new(TIGHT);
    let recorded = program.learn(Program::train).expect("a step");
    let ops = recorded.signatures.len() as u32;
    for (kept, sound) in [
        (vec![(0, 0), (0, 1), (2, 0)], true),
        (vec![(2, 0), (0, 0)], false),
        (vec![(1, 0), (1, 0)], false),
        (vec![(ops, 0)], false),
    ] {
        assert_eq!(guide(&recorded, &[]).with_kept(kept).is_ok(), sound);
    }
}
