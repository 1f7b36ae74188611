//! Engines that are told nothing of some ops, and those that follow no plan any more.

use super::TIGHT;
use super::program::{DEVICE, LAYERS, Program, fresh, guide};
use remat_core::*;

/// A step of one op, which none of the plans has.
fn other(program: &mut Program) -> Result<(), Error> {
    let made = program.op(&[program.weights], fresh(1))?;
    program.engine.release(made)
}

#[test]
fn an_engine_that_leaves_its_steps_follows_and_learns_none() {
    let mut program = Program::new(TIGHT);
    let recorded = program.learn(Program::train).expect("a step");
    let drop = GuideAction::Drop { op: 0, output: 0 };
    let guide = guide(&recorded, &[(LAYERS as u32, drop)]);
    program.engine.follow(guide);
    program.step(Program::train).expect("room");
    assert_eq!(program.engine.guided().steps, 1);
    program.engine.leave_steps();
    program.engine.set_budget(DEVICE, None).expect("room");
    let before = program.engine.counters();
    for _ in 0..8 {
        program.step(Program::train).expect("room");
        assert!(program.engine.recorded_step().is_none());
    }
    let after = program.engine.counters();
    assert_eq!(
        (after.evictions, after.replays),
        (before.evictions, before.replays)
    );
    assert_eq!(program.engine.guided(), Guided::default());
}

/// A front end need not tell of ops then, if memory is plentiful.
#[test]
fn an_engine_is_idle_while_no_step_is_recorded_or_followed() {
    let mut program = Program::new(TIGHT);
    let recorded = program.learn(Program::train).expect("a step");
    assert!(program.engine.is_idle());
    program.engine.follow(guide(&recorded, &[]));
    assert!(!program.engine.is_idle());
    program.step(Program::train).expect("room");
    assert_eq!(program.engine.guided().steps, 1);
    for number in 0..2 * recorded.signatures.len() {
        assert!(!program.engine.is_idle(), "{number}");
        program.step(other).expect("room");
    }
    assert!(program.engine.is_idle());
    program.step(Program::train).expect("room");
    assert!(!program.engine.is_idle());
    program.engine.forget_steps();
    assert!(program.engine.is_idle());
}

#[test]
fn an_engine_that_is_to_follow_a_given_plan_is_not_idle() {
    let recorded = Program::new(TIGHT).learn(Program::train).expect("a step");
    let mut engine = Engine::new(Config::default()); // it learns no steps
    engine.follow(guide(&recorded, &[]));
    let (outputs, workspace, workspace_device) = ([fresh(1)], Bytes(0), DEVICE);
    for number in 0..=2 * recorded.signatures.len() {
        assert!(!engine.is_idle(), "{number}");
        let spec = OpSpec {
            inputs: &[],
            outputs: &outputs,
            workspace,
            workspace_device,
            replay: Replay::Forbidden,
        };
        let op = engine.begin(&spec).expect("room");
        let made = engine.outputs(op)[0];
        let cost = Cost(1);
        engine
            .finish(op, &Finished { cost, bytes: None })
            .expect("begun");
        engine.release(made).expect("made");
    }
}

/// Some ops of each step are not told.
#[test]
fn no_step_is_found_among_ops_before_and_after_a_gap() {
    let found = |gap: bool, begins: fn(&mut Engine)| {
        let mut program = Program::new(TIGHT);
        let step = |program: &mut Program| {
            let layers = program.forward(program.weights)?;
            program.backward(layers)?;
            if gap {
                program.engine.note_gap();
            }
            begins(&mut program.engine);
            Ok(())
        };
        program.learn(step).is_some()
    };
    for begins in [|_: &mut Engine| (), Engine::mark_step] {
        assert!(found(false, begins));
        assert!(!found(true, begins));
    }
}
