//! Steps of several kinds, in no order.

use super::program::{LAYERS, Program, guide};
use remat_core::*;

/// Kinds of step in an order in which none follows its like for long.
const ORDER: [usize; 24] = [
    0, 1, 2, 0, 2, 1, 1, 0, 2, 2, 1, 0, 0, 2, 1, 0, 1, 2, 2, 0, 1, 2, 0, 1,
];

/// Within what leaves half of the layers.
fn program() -> Program {
    Program::new(50 * LAYERS as u64)
}

/// A step of one kind: each begins with the same op, and goes on with layers of its own size. `tells` is called where
/// it ends.
fn train(program: &mut Program, kind: usize, tells: fn(&mut Engine)) -> Result<(), Error> {
    let first = program.op(&[program.weights], super::fresh(7))?;
    let batch = program.op(&[first], super::fresh(90 + kind as u64))?;
    let layers = program.forward(batch)?;
    program.backward(layers)?;
    program.engine.release(batch)?;
    program.engine.release(first)?;
    tells(&mut program.engine);
    Ok(())
}

/// Follows each step that is recorded while these kinds come, without actions. Returns them.
fn learned(
    program: &mut Program,
    kinds: impl Iterator<Item = usize>,
    tells: fn(&mut Engine),
) -> Vec<Recorded> {
    let mut found = Vec::new();
    for kind in kinds {
        let step = program.step(|program| train(program, kind, tells));
        step.expect("room");
        if let Some(recorded) = program.engine.recorded_step() {
            program.engine.follow(guide(&recorded, &[]));
            found.push(recorded);
        }
    }
    found
}

/// So many steps in this order, again and again.
fn turns(order: &[usize], steps: usize) -> impl Iterator<Item = usize> + '_ {
    order.iter().copied().cycle().take(steps)
}

/// Whether steps that come in this order are followed, each to its end.
fn follows(program: &mut Program, order: &[usize]) -> bool {
    let before = program.engine.guided();
    learned(program, order.iter().copied(), Engine::may_begin_step);
    let after = program.engine.guided();
    after.steps - before.steps == order.len() as u64 && after.departures == before.departures
}

#[test]
fn each_kind_has_a_guide_where_a_front_end_tells_where_steps_may_begin() {
    for tells in [Engine::may_begin_step, Engine::mark_step] {
        let mut program = program();
        assert_eq!(learned(&mut program, turns(&ORDER, 72), tells).len(), 3);
        assert_eq!(program.engine.guided().guides, 3);
        assert!(follows(&mut program, &ORDER));
    }
}

/// That guide begins where memory starts to rise, and ends amid the step that comes next.
#[test]
fn the_guide_of_a_kind_takes_the_place_of_one_that_was_found_as_a_period() {
    let mut program = program();
    let period = learned(&mut program, turns(&[0], 6), Engine::may_begin_step);
    let kinds = learned(&mut program, turns(&ORDER, 72), Engine::may_begin_step);
    assert_eq!((period.len(), kinds.len()), (1, 3));
    let first = kinds[0].signatures[0];
    assert!(kinds.iter().all(|kind| kind.signatures[0] == first));
    assert_ne!(period[0].signatures[0], first);
    assert_eq!(program.engine.guided().guides, 3);
    assert!(follows(&mut program, &ORDER));
}

#[test]
fn once_there_are_several_kinds_those_that_come_in_a_row_begin_as_the_others() {
    let mut program = program();
    let kinds = learned(&mut program, turns(&ORDER, 48), Engine::may_begin_step);
    let another = learned(&mut program, turns(&[3], 8), Engine::may_begin_step);
    assert_eq!(another.len(), 1);
    assert_eq!(another[0].signatures[0], kinds[0].signatures[0]);
    assert!(follows(&mut program, &[3, 0, 3, 3, 1, 2, 3]));
}

#[test]
fn where_it_does_not_tell_only_what_comes_twice_in_a_row_is_found() {
    let apart = [0, 1, 2, 0, 2, 1, 0, 1, 0, 2, 1, 2, 0, 1, 2, 1, 0, 2, 0];
    let found = |tells| learned(&mut program(), turns(&apart, 60), tells).len();
    assert_eq!(found(|_| ()), 0);
    assert_eq!(found(Engine::may_begin_step), 3);
}

#[test]
fn steps_that_take_turns_are_no_kinds() {
    let found = |tells| learned(&mut program(), turns(&[0, 1], 60), tells);
    assert_eq!(found(Engine::may_begin_step), found(|_| ()));
}

/// A guide would not know of memory that fills from step to step.
#[test]
fn kinds_that_gather_are_found_only_where_the_program_marks_its_steps() {
    let gathers = |tells: fn(&mut Engine)| {
        let mut program = Program::new(50 * LAYERS as u64 + 200_000);
        let mut found = 0;
        for step in 0..100 {
            let kind = ORDER[step % ORDER.len()];
            let left = program.op(&[program.weights], super::fresh(10_000));
            left.expect("room");
            program
                .step(|program| train(program, kind, tells))
                .expect("room");
            found += usize::from(program.engine.recorded_step().is_some());
        }
        found
    };
    assert_eq!(gathers(Engine::may_begin_step), 0);
    assert!(gathers(Engine::mark_step) > 0);
}

#[test]
fn a_step_that_goes_on_as_another_kind_tells_so() {
    let mut program = program();
    learned(&mut program, turns(&ORDER, 72), Engine::may_begin_step);
    let mut marks = Vec::new();
    for kind in [0, 1] {
        program.engine.step_mark();
        let step = program.step(|program| {
            let first = program.op(&[program.weights], super::fresh(7))?;
            let Some(StepMark::Begun(begun)) = program.engine.step_mark() else {
                panic!("a step begins");
            };
            let batch = program.op(&[first], super::fresh(90 + kind))?;
            let became = match program.engine.step_mark() {
                Some(StepMark::Became(other)) => other,
                _ => begun,
            };
            let layers = program.forward(batch)?;
            program.backward(layers)?;
            program.engine.release(batch)?;
            program.engine.release(first)?;
            program.engine.may_begin_step();
            marks.push((begun, became));
            Ok(())
        });
        step.expect("room");
        let (_, became) = marks[marks.len() - 1];
        assert_eq!(program.engine.step_mark(), Some(StepMark::Ended(became)));
    }
    // The kind that ended last is taken to come again.
    assert_eq!(marks[1].0, marks[0].1);
    assert_ne!(marks[1].1, marks[1].0);
}
