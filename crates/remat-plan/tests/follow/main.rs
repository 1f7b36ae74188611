//! Steps that engines learn, have planned, and follow.

mod program;

use program::{Program, Totals};
use remat_core::{
    Bytes, Config, Cost, DeviceId, Draws, Engine, Guide, GuideAction, InvalidGuide, Policy,
    Recorded,
};
use remat_plan::step::{Learned, Search, StepPlan};
use remat_trace::{open, Event};
use std::ops::ControlFlow;

fn recorded(name: &str) -> Vec<Event> {
    let path = format!("../../traces/{name}.trace.zst");
    let reader = open(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    reader.map(|event| event.expect("a sound trace")).collect()
}

fn engine(budget: u64) -> Engine {
    Engine::new(Config {
        budgets: vec![Some(Bytes(budget))],
        policy: Policy::default(),
        ..Config::default()
    })
}

/// Runs steps, and has the engine follow a plan as soon as it recorded one. Returns the costs of each step.
fn run(events: &[Event], budget: u64, steps: usize) -> (Engine, Vec<Totals>, Option<StepPlan>) {
    let mut engine = engine(budget);
    engine.learn_steps(DeviceId(0));
    let mut program = Program::default();
    let (mut totals, mut found) = (Vec::new(), None);
    for _ in 0..steps {
        let step = program.step(&mut engine, events);
        totals.push(step.expect("room"));
        found = follow_what_was_recorded(&mut engine, budget).or(found);
    }
    (engine, totals, found)
}

/// A program whose engine follows what it recorded.
struct Learner {
    engine: Engine,
    program: Program,
    budget: u64,
    /// The cost of replays in each plan.
    planned: Vec<u64>,
}

impl Learner {
    fn new(budget: u64) -> Learner {
        let mut engine = engine(budget);
        engine.learn_steps(DeviceId(0));
        Learner {
            engine,
            program: Program::default(),
            budget,
            planned: Vec::new(),
        }
    }

    /// Runs a step. Returns the cost of its replays.
    fn step(&mut self, events: &[Event]) -> u64 {
        let totals = self.program.step(&mut self.engine, events);
        let plan = follow_what_was_recorded(&mut self.engine, self.budget);
        self.planned.extend(plan.map(|plan| plan.recompute_ns));
        totals.expect("room").replayed
    }
}

fn follow_what_was_recorded(engine: &mut Engine, budget: u64) -> Option<StepPlan> {
    let recorded = engine.recorded_step()?;
    let search = Search {
        iterations: Some(20),
        ..Search::default()
    };
    let watch = &mut |_: &_| ControlFlow::Continue(());
    let planned = Learned::new(&recorded).plan(Bytes(budget), search, watch);
    let (plan, guide) = planned.expect("a plan");
    engine.follow(guide);
    Some(plan)
}

/// Traces, and budgets as percentages of their peaks.
const CASES: [(&str, u64); 5] = [
    ("gpt", 60),
    ("gpt", 50),
    ("unet", 60),
    ("resnet", 60),
    ("gan", 70),
];

fn for_each_case(mut test: impl FnMut(&str, &[Event], u64)) {
    for (name, percent) in CASES {
        let events = recorded(name);
        let budget = program::peak(&events) / 100 * percent;
        test(&format!("{name} at {percent}%"), &events, budget);
    }
}

/// Once the plan is followed, a step takes as long as planned, within a hundredth, and less than without it.
#[test]
fn a_step_that_repeats_is_recorded_planned_and_followed() {
    for_each_case(|name, events, budget| {
        let (engine, totals, plan) = run(events, budget, 9);
        let plan = plan.unwrap_or_else(|| panic!("{name}: no step was recorded"));
        let guided = engine.guided();
        // A plan may be adopted amid a step, where ops come that begin a step too.
        assert!(guided.steps >= 4 && guided.departures <= 2, "{guided:?}");
        assert_eq!((guided.refused, guided.given_up), (0, 0), "{name}");
        let (online, planned) = (totals[1].replayed, totals[8].replayed);
        assert!(
            planned.abs_diff(plan.recompute_ns) <= plan.recompute_ns / 100,
            "{name}: {planned} for {}",
            plan.recompute_ns
        );
        assert!(planned < online * 9 / 10, "{name}: {planned} for {online}");
        assert!(engine.peak(DeviceId(0)).0 <= budget);
    });
}

#[test]
fn the_same_steps_give_the_same_decisions() {
    let events = recorded("unet");
    let budget = program::peak(&events) / 100 * 60;
    let first = run(&events, budget, 8);
    let second = run(&events, budget, 8);
    assert_eq!(first.1, second.1);
    assert_eq!(format!("{:?}", first.0), format!("{:?}", second.0));
}

/// Steps of another program come in between, and one that ends early.
#[test]
fn a_program_that_departs_is_followed_again_from_its_next_step() {
    let events = recorded("unet");
    let other = recorded("resnet");
    let budget = program::peak(&events).max(program::peak(&other)) / 100 * 70;
    let mut learner = Learner::new(budget);
    for _ in 0..7 {
        learner.step(&events);
    }
    let planned = learner.planned[0];
    let early = &events[..events.len() * 2 / 3];
    for between in [early, &other, early, &early[..events.len() / 3]] {
        learner.step(between);
        let next = learner.step(&events);
        assert!(next <= planned + planned / 50, "{next} for {planned}");
        learner.step(&events);
    }
    assert!(learner.engine.guided().departures > 0);
    assert!(learner.engine.peak(DeviceId(0)).0 <= budget);
}

/// Two kinds of step have a plan each.
#[test]
fn two_programs_are_followed_side_by_side() {
    let traces = [recorded("unet"), recorded("resnet")];
    let peaks = traces.each_ref().map(|events| program::peak(events));
    let mut learner = Learner::new(peaks[0].max(peaks[1]) / 100 * 60);
    for events in &traces {
        for _ in 0..6 {
            learner.step(events);
        }
    }
    assert_eq!(learner.engine.guided().guides, 2);
    for _ in 0..3 {
        for (events, planned) in traces.iter().zip(learner.planned.clone()) {
            let replayed = learner.step(events);
            assert!(
                replayed <= planned + planned / 50,
                "{replayed} for {planned}"
            );
        }
    }
}

/// Whatever a plan says: the budget holds, every op finds its inputs, and a plan that costs too much is given up. What
/// a plan drops at random may need more room to come back than there is; such a step is refused, and the next one runs.
#[test]
fn wrong_plans_do_little_harm() {
    let mut refused = 0;
    for_each_case(|name, events, budget| {
        for seed in 0..1 {
            let mut draws = Draws(seed);
            let mut engine = engine(budget);
            engine.learn_steps(DeviceId(0));
            let mut program = Program::default();
            for _ in 0..10 {
                refused += u32::from(program.step(&mut engine, events).is_err());
                if let Some(recorded) = engine.recorded_step() {
                    engine.follow(wrong(&recorded, &mut draws));
                }
            }
            let guided = engine.guided();
            assert!(guided.ops > 0 && guided.given_up > 0, "{name}: {guided:?}");
            assert!(engine.peak(DeviceId(0)).0 <= budget);
        }
    });
    assert!(refused <= 5, "{refused} of 50 steps");
}

/// A guide with actions at random.
fn wrong(recorded: &Recorded, draws: &mut Draws) -> Guide {
    let ops = recorded.signatures.len() as u32;
    let mut actions = vec![Vec::new(); ops as usize];
    for place in 1..ops {
        while draws.next() % 5 == 0 {
            let op = (draws.next() % u64::from(place)) as u32;
            let output = (draws.next() % 3) as u32;
            actions[place as usize].push(match draws.next() % 4 {
                0 => GuideAction::Run(op),
                1 => GuideAction::RunInPlace(op),
                _ => GuideAction::Drop { op, output },
            });
        }
    }
    Guide::new(recorded.signatures.clone(), &actions, recorded.replayed).expect("earlier ops")
}

#[test]
fn a_guide_names_ops_before_its_own_and_each_op_has_a_list() {
    let drop = |op| vec![GuideAction::Drop { op, output: 0 }];
    let made = |signatures: &[u64], actions: &[Vec<GuideAction>]| {
        Guide::new(signatures.to_vec(), actions, Cost(0))
    };
    assert!(made(&[1, 2], &[vec![], drop(0)]).is_ok());
    assert_eq!(made(&[1, 2], &[vec![], drop(1)]), Err(InvalidGuide));
    assert_eq!(made(&[1, 2], &[drop(0), vec![]]), Err(InvalidGuide));
    assert_eq!(made(&[1, 2], &[vec![]]), Err(InvalidGuide));
    assert_eq!(made(&[], &[]), Err(InvalidGuide));
}
