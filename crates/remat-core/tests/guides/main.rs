//! Steps that engines learn, and guides that they follow, in programs made for one rule each.

mod idle;
mod kept;
mod kinds;
mod program;
mod transient;
mod unreplayed;

use program::{DEVICE, LAYERS, Program, fresh, guide};
use remat_core::*;

/// Half of what the layers take.
const TIGHT: u64 = 50 * LAYERS as u64;

#[test]
fn the_record_holds_the_ops_and_which_of_them_ran_again_before_which() {
    let mut program = Program::new(TIGHT);
    let recorded = program.learn(Program::train).expect("a step");
    assert_eq!(recorded.signatures.len(), 2 * LAYERS + 1);
    // Each step replays the same.
    assert!(!recorded.replays.is_empty());
    program.step(Program::train).expect("room");
    assert_eq!(recorded.replays, program.replays);
}

/// An op of an arena that finds no room is announced again.
#[test]
fn ops_that_did_not_run_keep_no_step_from_being_found() {
    let found = |hesitant: usize| {
        let mut program = Program::new(TIGHT);
        (0..10).find(|&step| {
            program.hesitates = step < hesitant;
            program.step(Program::train).expect("room");
            program.engine.recorded_step().is_some()
        })
    };
    let at_once = found(0).expect("a step");
    for hesitant in 1..=at_once {
        assert_eq!(found(hesitant), Some(at_once), "{hesitant}");
    }
}

#[test]
fn sizes_that_are_known_late_do_not_add_up_from_step_to_step() {
    let others = Bytes(1 << 30);
    let mut program = Program::new(TIGHT * 1_000 + others.0);
    program.engine.constant(others, DEVICE).expect("room");
    let recorded = program.learn(|program| {
        let mut layers = vec![program.weights];
        for _ in 0..LAYERS {
            let last = layers[layers.len() - 1];
            let known = Some(Bytes(100_000));
            layers.push(program.run(&[last], fresh(0), Replay::Allowed, known)?);
        }
        layers.remove(0);
        program.backward(layers)
    });
    assert!(recorded.is_some());
}

/// A batch comes as a constant, with room sought for it or without.
#[test]
fn a_step_that_is_given_constants_is_recorded() {
    for elsewhere in [false, true] {
        let mut program = Program::new(TIGHT + 100);
        let recorded = program.learn(|program| {
            let started = program.op(&[program.weights], fresh(10))?;
            let batch = if elsewhere {
                program.engine.constant_elsewhere(Bytes(50), DEVICE)?
            } else {
                program.engine.constant(Bytes(50), DEVICE)?
            };
            let layers = program.forward(batch)?;
            program.backward(layers)?;
            program.engine.release(batch)?;
            program.engine.release(started)
        });
        let recorded = recorded.expect("a step");
        let is_batch = |event: &&Told| {
            matches!(
                event,
                Told::There {
                    origin: None,
                    bytes: Bytes(50),
                    ..
                }
            )
        };
        assert_eq!(
            recorded.events.iter().filter(is_batch).count(),
            1,
            "{elsewhere}"
        );
    }
}

#[test]
fn what_was_made_long_ago_is_known_by_its_size_wherever_it_was_made() {
    let mut program = Program::new(TIGHT + 100);
    let order = program.op(&[program.weights], fresh(50)).expect("room");
    let recorded = program.learn(|program| {
        let layers = program.forward(order)?;
        program.backward(layers)
    });
    assert_eq!(
        recorded.map(|step| step.signatures.len()),
        Some(2 * LAYERS + 1)
    );
}

/// A program that gathers values from step to step is not back where it was.
#[test]
fn steps_that_gather_are_learned_where_the_program_marks_them() {
    let step = |program: &mut Program| {
        for _ in 0..32 {
            program.op(&[program.weights], fresh(1))?;
        }
        program.train()
    };
    assert!(Program::new(TIGHT + 1_000).learn(step).is_none());
    let recorded = Program::new(TIGHT + 1_000).learn(|program| {
        program.engine.mark_step();
        step(program)
    });
    let steps = recorded.map(|step| step.signatures.len());
    assert_eq!(steps, Some(32 + 2 * LAYERS + 1));
}

#[test]
fn results_that_cannot_be_made_again_are_recorded_as_pinned() {
    let mut program = Program::new(TIGHT);
    let recorded = program.learn(|program| {
        let drawn = program.run(&[], fresh(100), Replay::Forbidden, None)?;
        let layers = program.forward(drawn)?;
        program.engine.release(drawn)?;
        program.backward(layers)
    });
    let events = recorded.expect("a step").events;
    let drawn = events.iter().find_map(|event| match event {
        Told::Op {
            outputs,
            replay: Replay::Forbidden,
            ..
        } => Some(outputs[0].tensor),
        _ => None,
    });
    let drawn = drawn.expect("an op that cannot run again");
    assert!(events.contains(&Told::Pin(drawn)));
}

/// Each turn leaves nothing behind and replays something, so that the loop is found before the step. It ends while it
/// is recorded.
#[test]
fn a_step_is_found_though_a_loop_amid_it_is_found_first() {
    const TURNS: usize = 4;
    let turn = |program: &mut Program| {
        let mut layers = vec![program.weights];
        for number in 1..=6 {
            layers.push(program.op(&[layers[number - 1]], fresh(100))?);
        }
        layers.remove(0);
        program.backward(layers)
    };
    let step = |program: &mut Program| {
        for size in 20..60 {
            let made = program.op(&[program.weights], fresh(size))?;
            program.engine.release(made)?;
        }
        (0..TURNS).try_for_each(|_| turn(program))
    };
    let mut program = Program::new(500);
    let found = (0..30).find_map(|_| {
        program.step(step).expect("room");
        program.engine.recorded_step()
    });
    let recorded = found.expect("a step");
    assert_eq!(recorded.signatures.len(), 40 + TURNS * 13);
    assert!(!recorded.replays.is_empty());
}

/// The steps that are recorded of so many.
fn recorded_of(program: &mut Program, steps: usize) -> Vec<Recorded> {
    let each = (0..steps).filter_map(|_| {
        program.step(Program::train).expect("room");
        program.engine.recorded_step()
    });
    each.collect()
}

/// A step that takes longer is recorded after eight in a row, once; and after sixteen the next time, whether it was
/// planned again or not.
#[test]
fn a_followed_step_whose_time_moved_is_recorded_again() {
    for planned_again in [false, true] {
        let mut program = Program::new(TIGHT);
        let recorded = program.learn(Program::train).expect("a step");
        program.engine.follow(guide(&recorded, &[]));
        assert!(recorded_of(&mut program, 40).is_empty());
        program.cost = Cost(20);
        assert!(recorded_of(&mut program, 8).is_empty());
        let again = recorded_of(&mut program, 3).pop().expect("a step");
        assert_eq!(again.signatures, recorded.signatures);
        assert_eq!(again.costs().first.0, 2 * recorded.costs().first.0);
        // Without the guide replays would take twice as long, too.
        assert_eq!(again.replayed.0, 2 * recorded.replayed.0);
        if planned_again {
            program.engine.follow(guide(&again, &[]));
        }
        assert!(recorded_of(&mut program, 40).is_empty());
        program.cost = Cost(10);
        assert!(recorded_of(&mut program, 16).is_empty());
        assert_eq!(recorded_of(&mut program, 3).len(), 1);
        assert!(recorded_of(&mut program, 40).is_empty());
    }
}

/// A step that is left while it is recorded again is recorded the next time, and not taken for a new one.
#[test]
fn a_followed_step_that_is_left_is_recorded_the_next_time() {
    let mut program = Program::new(TIGHT);
    let recorded = program.learn(Program::train).expect("a step");
    program.engine.follow(guide(&recorded, &[]));
    program.cost = Cost(20);
    assert!(recorded_of(&mut program, 8).is_empty());
    let left = program.step(|program| {
        for layer in program.forward(program.weights)? {
            program.engine.release(layer)?;
        }
        Ok(())
    });
    left.expect("room");
    assert!(program.engine.recorded_step().is_none());
    assert_eq!(recorded_of(&mut program, 3).len(), 1);
    assert!(recorded_of(&mut program, 40).is_empty());
}

/// An op that writes in place, run again, leaves what it writes into to others, or takes it.
#[test]
fn a_run_again_writes_into_a_copy_unless_it_is_told_otherwise() {
    let steps = |program: &mut Program| {
        let value = program.op(&[program.weights], fresh(100))?;
        let reader = program.op(&[value], fresh(100))?;
        let written = program.op(&[value], Output::InPlace { of: 0 })?;
        program.engine.release(value)?;
        let layers = program.forward(program.weights)?;
        let sum = program.op(&[reader, written], fresh(100))?;
        for tensor in [reader, written, sum] {
            program.engine.release(tensor)?;
        }
        program.backward(layers)
    };
    let refused = |again: GuideAction| {
        let mut program = Program::new(TIGHT + 400);
        let recorded = program.learn(steps).expect("a step");
        assert_eq!(recorded.signatures.len(), 2 * LAYERS + 5);
        let (value, reader, written, sum) = (0, 1, 2, LAYERS as u32 + 3);
        let drop = |op| GuideAction::Drop { op, output: 0 };
        let (value, reader_again) = (GuideAction::Run(value), GuideAction::Run(reader));
        let actions = [drop(reader), drop(written), value, again, reader_again];
        let before_sum = actions.map(|action| (sum, action));
        // Room for all of it.
        let layers = (20..30).map(|layer| (sum, drop(3 + layer)));
        let actions: Vec<_> = layers.chain(before_sum).collect();
        program.engine.follow(guide(&recorded, &actions));
        for _ in 0..4 {
            program.step(steps).expect("room");
        }
        assert!(program.engine.guided().steps >= 3);
        program.engine.guided().refused
    };
    assert_eq!(refused(GuideAction::Run(2)), 0);
    assert!(refused(GuideAction::RunInPlace(2)) > 0);
}

/// A storage that was freed within the step has an id that another one has later.
#[test]
fn what_was_freed_is_not_dropped_under_its_old_name() {
    let steps = |program: &mut Program| {
        let value = program.op(&[program.weights], fresh(100))?;
        let other = program.op(&[program.weights], fresh(100))?;
        program.engine.release(value)?;
        program.engine.collected();
        let layers = program.forward(program.weights)?;
        program.engine.release(other)?;
        program.backward(layers)
    };
    let evictions = |actions: &[(u32, GuideAction)]| {
        let mut program = Program::new(TIGHT + 100);
        let recorded = program.learn(steps).expect("a step");
        program.engine.follow(guide(&recorded, actions));
        for _ in 0..4 {
            program.step(steps).expect("room");
        }
        assert!(program.engine.guided().steps >= 3);
        program.engine.counters()
    };
    let drop = GuideAction::Drop { op: 0, output: 0 };
    assert_eq!(evictions(&[(20, drop)]), evictions(&[]));
}

#[test]
fn outputs_that_no_op_of_the_step_has_are_not_dropped() {
    let mut program = Program::new(TIGHT);
    let recorded = program.learn(Program::train).expect("a step");
    let drop = |output| GuideAction::Drop { op: 1, output };
    let actions = [u32::MAX, u32::MAX - 1].map(|output| (LAYERS as u32, drop(output)));
    program.engine.follow(guide(&recorded, &actions));
    for _ in 0..3 {
        program.step(Program::train).expect("room");
    }
    assert_eq!(program.engine.guided().steps, 3);
}

/// A guide that has a step refused, which online is not, is given up after the third time.
#[test]
fn a_guide_whose_steps_are_refused_is_given_up() {
    let steps = |program: &mut Program| {
        // The step is known to begin here: from now on more is referenced.
        let first = program.op(&[program.weights], fresh(100))?;
        let parts: Vec<TensorId> = (0..10)
            .map(|_| program.op(&[program.weights], fresh(100)))
            .collect::<Result<_, _>>()?;
        // Small and dear, so that online it stays.
        let whole = program.op(&parts, fresh(1))?;
        for part in parts {
            program.engine.release(part)?;
        }
        // From here on there is no room for all parts at once.
        let held = program.run(&[], fresh(800), Replay::Forbidden, None)?;
        let layers = program.forward(program.weights)?;
        let last = program.op(&[whole, held], fresh(100));
        program.engine.release(whole)?;
        program.engine.release(held)?;
        program.engine.release(first)?;
        let gradients = program.backward(layers);
        program.engine.release(last?)?;
        gradients
    };
    let mut program = Program::new(1_700);
    let recorded = program.learn(steps).expect("a step");
    let drops = (1..12).map(|op| (20, GuideAction::Drop { op, output: 0 }));
    let drops: Vec<_> = drops.collect();
    program.engine.follow(guide(&recorded, &drops));
    let refused = (0..8).filter(|_| program.step(steps).is_err()).count();
    let guided = program.engine.guided();
    assert_eq!((guided.given_up, guided.guides), (1, 0), "{guided:?}");
    assert!((3..=4).contains(&refused), "{refused}");
    assert!(program.step(steps).is_ok());
}

/// Two kinds of step that begin alike have a plan each.
#[test]
fn steps_that_begin_alike_are_told_apart_where_they_part() {
    let long = |program: &mut Program| program.train();
    let other = |program: &mut Program| {
        let layers = program.forward(program.weights)?;
        let sum = program.op(&[program.weights, layers[LAYERS - 1]], fresh(200))?;
        program.engine.release(sum)?;
        program.backward(layers)
    };
    let mut program = Program::new(TIGHT);
    for kind in [&long as &dyn Fn(&mut Program) -> Result<(), Error>, &other] {
        let recorded = program.learn(kind).expect("a step");
        program.engine.follow(guide(&recorded, &[]));
    }
    for _ in 0..2 {
        program.step(long).expect("room");
        program.step(other).expect("room");
    }
    let before = program.engine.guided();
    for _ in 0..10 {
        program.step(long).expect("room");
        program.step(other).expect("room");
    }
    let after = program.engine.guided();
    assert_eq!(after.steps - before.steps, 20);
    assert_eq!(after.departures, before.departures);
}

/// An op is begun in vain where a planned step expects it, and the program goes on as planned.
#[test]
fn an_op_that_was_begun_in_vain_ends_the_planned_step() {
    let steps = |program: &mut Program, in_vain: bool| {
        let layers = program.forward(program.weights)?;
        let probe = program.begin(&[layers[3]], fresh(100), Replay::Allowed)?;
        if in_vain {
            program.engine.cancel(probe);
        } else {
            let (cost, bytes) = (Cost(10), None);
            program.engine.finish(probe, &Finished { cost, bytes })?;
            program.engine.release(program.engine.outputs(probe)[0])?;
        }
        program.backward(layers)
    };
    let mut program = Program::new(TIGHT);
    let recorded = program.learn(|program| steps(program, false));
    let recorded = recorded.expect("a step");
    program.engine.follow(guide(&recorded, &[]));
    for _ in 0..2 {
        program.step(|program| steps(program, false)).expect("room");
    }
    let before = program.engine.guided();
    assert!(before.steps > 0);
    program.step(|program| steps(program, true)).expect("room");
    let broken = program.engine.guided();
    assert_eq!(broken.departures, before.departures + 1);
    assert_eq!(broken.steps, before.steps);
    program.step(|program| steps(program, false)).expect("room");
    assert_eq!(program.engine.guided().steps, before.steps + 1);
    assert!(program.engine.peak(DEVICE).0 <= TIGHT);

    // A step with such an op is not recorded.
    let mut program = Program::new(TIGHT);
    assert_eq!(program.learn(|program| steps(program, true)), None);
}

/// A plan that drops two of three layers as soon as the next one is made, and makes them again in pairs: no step of it
/// searches for victims.
fn in_pairs() -> Vec<(u32, GuideAction)> {
    let layers = LAYERS as u32;
    let alone = layers - 2;
    let dropped = pairs().flatten().chain([alone]);
    let mut actions: Vec<_> = dropped.map(|layer| drop(layer + 2, layer)).collect();
    actions.push(run(alone, alone));
    actions.extend(pairs().flat_map(|[first, second]| [run(second, first), run(second, second)]));
    actions
}

fn pairs() -> impl Iterator<Item = [u32; 2]> {
    (0..11).map(|pair| [3 * pair, 3 * pair + 1])
}

/// A layer is dropped before the op of a place.
fn drop(place: u32, layer: u32) -> (u32, GuideAction) {
    let (op, output) = (layer, 0);
    (place, GuideAction::Drop { op, output })
}

/// A layer is made again before the gradient of another.
fn run(reader: u32, layer: u32) -> (u32, GuideAction) {
    (2 * LAYERS as u32 - reader, GuideAction::Run(layer))
}

/// A plan's actions before an op that did not run happen once, and the op comes again where the plan has it.
#[test]
fn ops_that_did_not_run_and_come_again_are_followed() {
    // The first of each pair is there to make the second of, and is made a third time for its own gradient.
    let mut actions = in_pairs();
    for [first, second] in pairs() {
        actions.push(drop(2 * LAYERS as u32 - second, first));
        actions.push(run(first, first));
    }
    let counted = |hesitates: bool| {
        let mut program = Program::new(TIGHT + 50);
        let recorded = program.learn(Program::train).expect("a step");
        program.engine.follow(guide(&recorded, &actions));
        program.step(Program::train).expect("room");
        let searches = program.engine.counters().searches;
        program.hesitates = hesitates;
        let replayed = program.step(Program::train).expect("room");
        assert_eq!(replayed, 10 * (3 * 11 + 1));
        assert_eq!(program.engine.counters().searches, searches);
        let guided = program.engine.guided();
        (guided.steps, guided.ops, guided.departures, guided.refused)
    };
    assert_eq!(counted(false), counted(true));
}

/// A step goes on by the plan that it began by, and the next one follows the later plan.
#[test]
fn a_later_plan_is_followed_from_the_next_step_on() {
    let mut program = Program::new(TIGHT + 50);
    let recorded = program.learn(Program::train).expect("a step");
    program.engine.follow(guide(&recorded, &in_pairs()));
    for _ in 0..2 {
        program.step(Program::train).expect("room");
    }
    let planned = std::mem::take(&mut program.replays);
    assert_eq!(planned.len(), 23);
    let later = guide(&recorded, &[drop(20, 5), (20, GuideAction::Run(5))]);
    let turning = |program: &mut Program| {
        let layers = program.forward(program.weights)?;
        program.engine.follow(later);
        program.backward(layers)
    };
    program.step(turning).expect("room");
    assert_eq!(program.replays, planned);
    program.step(Program::train).expect("room");
    assert_eq!(program.replays.first(), Some(&(5, 20)));
    assert_eq!(program.engine.guided().steps, 4);
}

/// Whatever comes between the steps of such a plan searches for victims, by scores that are counted afresh (debug
/// builds compare them).
#[test]
fn what_a_plan_does_without_scores_is_decided_by_them_again_where_the_program_departs() {
    let actions = in_pairs();
    let mut program = Program::new(TIGHT + 50);
    // Known from step to step; its score counts the first layers, which are dropped.
    let held = program.op(&[program.weights], fresh(50)).expect("room");
    let train = |program: &mut Program| {
        let layers = program.forward(held)?;
        program.backward(layers)
    };
    let recorded = program.learn(train).expect("a step");
    program.engine.follow(guide(&recorded, &actions));
    for _ in 0..3 {
        program.step(train).expect("room");
        let searches = program.engine.counters().searches;
        for _ in 0..3 {
            let replayed = program.step(train).expect("room");
            assert_eq!(replayed, 10 * 23);
        }
        assert_eq!(program.engine.counters().searches, searches);
        let other = |program: &mut Program| {
            let layers = program.forward(held)?;
            let sum = program.op(&[program.weights, layers[3]], fresh(200))?;
            program.engine.release(sum)?;
            program.backward(layers)
        };
        program.step(other).expect("room");
        assert!(program.engine.counters().searches > searches);
    }
    assert!(program.engine.peak(DEVICE).0 <= TIGHT + 50);
}

/// A step whose ops have forms; those that need no record pass.
fn train_with_forms(program: &mut Program) -> Result<(), Error> {
    train_with_forms_and(program, |_| {})
}

/// The same, and something that happens between the forward pass and the backward pass.
fn train_with_forms_and(
    program: &mut Program,
    between: impl FnOnce(&mut Engine),
) -> Result<(), Error> {
    let op = |program: &mut Program, form: u64, inputs: &[TensorId]| {
        let room = program.engine.memory(DEVICE).0 + 100 <= TIGHT;
        if room && program.engine.may_pass(form) {
            let (number, _) = program.engine.pass(program.cost, 1)?;
            return program.engine.constant_of(number, 0, Bytes(100), DEVICE);
        }
        program.engine.note_form(form);
        program.op(inputs, fresh(100))
    };
    let mut layers = vec![op(program, 1, &[program.weights, program.weights])?];
    while layers.len() < LAYERS {
        let last = layers[layers.len() - 1];
        layers.push(op(program, 1, &[program.weights, last])?);
    }
    let mut gradient = op(program, 2, &[program.weights])?;
    between(&mut program.engine);
    while let Some(layer) = layers.pop() {
        let next = op(program, 3, &[gradient, layer])?;
        program.engine.release(gradient)?;
        program.engine.release(layer)?;
        gradient = next;
    }
    program.engine.release(gradient)
}

/// A guide of what the policy replays, in which the gradients need no record.
fn guide_without_records(recorded: &Recorded) -> Guide {
    let actions: Vec<_> = recorded
        .replays
        .iter()
        .map(|&(op, before)| (before, GuideAction::Run(op)))
        .collect();
    let replayed = |place: &u32| recorded.replays.iter().all(|(op, _)| op != place);
    let gradients = (LAYERS as u32..recorded.signatures.len() as u32).filter(replayed);
    guide(recorded, &actions)
        .with_unrecorded(gradients.collect(), None)
        .expect("places of the step")
}

/// A program that follows such a guide, and may forgo records.
fn without_records() -> Program {
    let mut program = Program::new(TIGHT);
    program.engine.forgo_records();
    let recorded = program.learn(train_with_forms).expect("a step");
    program.engine.follow(guide_without_records(&recorded));
    program
}

#[test]
fn ops_without_use_pass_once_a_step_was_followed_whole() {
    let mut program = without_records();
    let rest = program.engine.memory(DEVICE);
    // The step that was learned may begin amid that of the program, so two may pass before one is seen whole.
    for _ in 0..3 {
        program.step(train_with_forms).expect("room");
    }
    let before = program.engine.guided();
    let first = program.engine.counters().first_cost;
    for _ in 0..4 {
        program.step(train_with_forms).expect("room");
        assert_eq!(program.engine.memory(DEVICE), rest);
    }
    let after = program.engine.guided();
    assert_eq!(after.steps, before.steps + 4);
    assert!(after.unrecorded >= before.unrecorded + 4 * LAYERS as u64 / 4);
    assert_eq!(after.departures, before.departures);
    let ops = 4 * (2 * LAYERS as u64 + 1);
    assert_eq!(
        program.engine.counters().first_cost.0 - first.0,
        ops * program.cost.0
    );
    assert!(program.engine.peak(DEVICE).0 <= TIGHT);
}

/// Where the rest of a step has to be recorded three times in a row, whole steps are from then on.
#[test]
fn steps_whose_rest_is_recorded_again_and_again_are_recorded_whole() {
    let mut program = without_records();
    let interrupted = |program: &mut Program| {
        train_with_forms_and(program, |engine| {
            engine.record_rest();
            engine.record_rest();
        })
    };
    let passed =
        |program: &mut Program, steps, step: &dyn Fn(&mut Program) -> Result<(), Error>| {
            let before = program.engine.guided().unrecorded;
            for _ in 0..steps {
                program.step(step).expect("room");
            }
            program.engine.guided().unrecorded - before
        };
    passed(&mut program, 4, &train_with_forms);
    assert!(passed(&mut program, 1, &train_with_forms) > LAYERS as u64 / 4);
    for _ in 0..3 {
        passed(&mut program, 2, &interrupted);
        assert!(passed(&mut program, 1, &train_with_forms) > 0);
    }
    passed(&mut program, 3, &interrupted);
    let steps = program.engine.guided().steps;
    assert_eq!(passed(&mut program, 4, &train_with_forms), 0);
    assert_eq!(program.engine.guided().steps, steps + 4);
    assert!(program.engine.peak(DEVICE).0 <= TIGHT);
}

#[test]
fn all_ops_are_announced_where_records_are_not_forgone() {
    let mut program = Program::new(TIGHT);
    let recorded = program.learn(train_with_forms).expect("a step");
    program.engine.follow(guide_without_records(&recorded));
    for _ in 0..6 {
        program.step(train_with_forms).expect("room");
    }
    assert_eq!(program.engine.guided().unrecorded, 0);
    assert!(program.engine.guided().steps >= 4);
}

/// An op that comes otherwise after ops that passed is announced, and the plan is followed again afterwards.
#[test]
fn a_step_is_left_after_ops_that_passed() {
    let mut program = without_records();
    for _ in 0..4 {
        program.step(train_with_forms).expect("room");
    }
    let before = program.engine.guided();
    let other = |program: &mut Program| {
        train_with_forms(program)?;
        let other = program.op(&[program.weights], fresh(7))?;
        program.engine.release(other)
    };
    program.step(other).expect("room");
    for _ in 0..4 {
        program.step(train_with_forms).expect("room");
    }
    let after = program.engine.guided();
    assert!(after.steps >= before.steps + 3);
    assert!(after.unrecorded > before.unrecorded);
}

#[test]
fn places_of_ops_without_records_rise_and_are_of_the_step() {
    let mut program = Program::new(TIGHT);
    let recorded = program.learn(Program::train).expect("a step");
    let ops = recorded.signatures.len() as u32;
    for (places, sound) in [
        (vec![0, 2], true),
        (vec![2, 0], false),
        (vec![1, 1], false),
        (vec![ops], false),
    ] {
        let made = guide(&recorded, &[]).with_unrecorded(places, None);
        assert_eq!(made.is_ok(), sound);
    }
}

/// The forward pass of a step, and another op between that and the backward pass.
fn train_otherwise(program: &mut Program) -> Result<(), Error> {
    let layers = program.forward(program.weights)?;
    let sum = program.op(&[program.weights, layers[LAYERS - 1]], fresh(200))?;
    program.engine.release(sum)?;
    program.backward(layers)
}

/// A step that is done no more begins like the one that the program does now. That is followed from its first op on,
/// so that its ops come to leave no record.
#[test]
fn of_guides_that_begin_alike_the_one_whose_step_ended_last_is_followed() {
    let mut program = Program::new(TIGHT);
    program.engine.forgo_records();
    let other = program.learn(train_otherwise).expect("a step");
    program.engine.follow(guide(&other, &[]));
    let recorded = program.learn(train_with_forms).expect("a step");
    program.engine.follow(guide_without_records(&recorded));
    for _ in 0..6 {
        program.step(train_with_forms).expect("room");
    }
    assert!(program.engine.guided().unrecorded > 0);
    // The other one is still known.
    let before = program.engine.guided();
    for _ in 0..3 {
        program.step(train_otherwise).expect("room");
    }
    assert_eq!(program.engine.guided().steps, before.steps + 3);
    assert!(program.engine.peak(DEVICE).0 <= TIGHT);
}
