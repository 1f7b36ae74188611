//! Steps in which nothing is replayed.

use super::TIGHT;
use super::program::{DEVICE, LAYERS, Program, guide};
use remat_core::*;

/// A program that leaves its planned step again and again does another one now, in which nothing may be replayed.
#[test]
fn another_step_without_replays_is_learned_where_the_planned_one_comes_no_more() {
    let mut program = Program::new(TIGHT);
    let recorded = program.learn(Program::train).expect("a step");
    program.engine.follow(guide(&recorded, &[]));
    let forward = |program: &mut Program| {
        let layers = program.forward(program.weights)?;
        layers
            .into_iter()
            .try_for_each(|layer| program.engine.release(layer))
    };
    let found = program.learn(forward).expect("a step");
    assert_eq!((found.signatures.len(), found.replayed), (LAYERS, Cost(0)));
    // Where no planned step is left and memory is plentiful, a step without replays is none.
    assert!(Program::new(10 * TIGHT).learn(forward).is_none());
}

/// More than three fifths of the budget are needed.
#[test]
fn steps_without_replays_are_learned_where_memory_is_not_plentiful() {
    let all = 100 * LAYERS as u64;
    let learned = |budget: u64| Program::new(budget).learn(Program::train);
    let recorded = learned(all * 3 / 2).expect("a step");
    assert_eq!(recorded.signatures.len(), 2 * LAYERS + 1);
    assert!(recorded.replays.is_empty() && recorded.replayed == Cost(0));
    assert!(learned(all * 2).is_none());
}

/// The program holds more from now on, so that its steps replay more than nothing.
#[test]
fn a_step_that_was_planned_without_replays_is_learned_again_once_it_has_some() {
    let all = 100 * LAYERS as u64;
    let mut program = Program::new(all * 3 / 2);
    let idle = program.learn(Program::train).expect("a step");
    program.engine.follow(guide(&idle, &[]));
    for _ in 0..10 {
        assert_eq!(program.step(Program::train).expect("room"), 0);
    }
    assert_eq!(program.engine.guided().guides, 1);
    let more = program.engine.constant(Bytes(all), DEVICE).expect("room");
    let recorded = program.learn(Program::train).expect("the same step");
    assert_eq!(recorded.signatures.len(), idle.signatures.len());
    assert!(recorded.replayed > Cost(0));
    assert_eq!(program.engine.guided().guides, 0);
    program.engine.release(more).expect("a reference");
}

/// Memory gets short after some steps, perhaps while one is recorded.
#[test]
fn from_the_first_replay_on_steps_are_learned_in_which_something_is_replayed() {
    let all = 100 * LAYERS as u64;
    for idle in 0..8 {
        let mut program = Program::new(all * 3 / 2);
        let mut learned = false;
        for _ in 0..idle {
            program.step(Program::train).expect("room");
            learned |= program.engine.recorded_step().is_some();
        }
        program.engine.constant(Bytes(all), DEVICE).expect("room");
        let recorded = program.learn(Program::train);
        assert_eq!(recorded.is_some(), !learned, "after {idle} steps");
        // One that was recorded whole before may be told of late.
        let replays =
            |recorded: Recorded| (recorded.replayed > Cost(0), !recorded.replays.is_empty());
        let (cost, ops) = recorded.map(replays).unwrap_or_default();
        assert_eq!(cost, ops, "after {idle} steps");
        let forward = |program: &mut Program| {
            let layers = program.forward(program.weights)?;
            let mut layers = layers.into_iter();
            layers.try_for_each(|layer| program.engine.release(layer))
        };
        assert!(program.learn(forward).is_none());
    }
}
