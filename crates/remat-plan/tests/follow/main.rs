//! Steps that engines learn, have planned, and follow.

mod arenas;
mod plans;
mod unrecorded;

use remat_core::{
    Bytes, Config, Cost, DeviceId, Draws, Engine, Error, Guide, GuideAction, Guided, InvalidGuide,
    Recorded, StepCosts, StepMark,
};
use remat_plan::step::{Action, Learned, PlannedStep, PlannedSteps, Search, StepError, StepPlan};
use remat_trace::{Event, Planning, Replayer, open};
use std::collections::HashSet;
use std::ops::ControlFlow;

use plans::Asked;

fn recorded(name: &str) -> Vec<Event> {
    let path = format!("../../traces/{name}.trace.zst");
    let reader = open(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    reader.map(|event| event.expect("a sound trace")).collect()
}

/// The peak of the step without a budget.
fn peak(events: &[Event]) -> u64 {
    let mut replayer = Replayer::new(Config::default());
    for event in events {
        replayer.feed(event).expect("no budget");
    }
    replayer.engine().peak(DeviceId(0)).0
}

/// A program that runs recorded steps again and again.
struct Program {
    replayer: Replayer,
    budget: Bytes,
    /// The cost of replays in each plan so far.
    planned: Vec<u64>,
    plans: PlannedSteps,
    /// How long steps take with the plan and without it, in nanoseconds, if somebody measures.
    clock: Option<(u64, u64)>,
    /// Whether plans may keep results after the program let go of them.
    keeps: bool,
    /// Whether plans are made anew, though they were made before.
    anew: bool,
}

impl Program {
    fn new(budget: u64) -> Program {
        let mut program = Program::unlearned(budget);
        program.replayer.engine_mut().learn_steps(DeviceId(0));
        program
    }

    /// One whose steps are not learned.
    fn unlearned(budget: u64) -> Program {
        let replayer = Replayer::new(Config {
            budgets: vec![Some(Bytes(budget))],
            ..Config::default()
        });
        Program {
            replayer,
            budget: Bytes(budget),
            planned: Vec::new(),
            plans: PlannedSteps::new("cpu", budget),
            clock: None,
            keeps: false,
            anew: false,
        }
    }

    fn engine(&self) -> &Engine {
        self.replayer.engine()
    }

    fn guided(&self) -> Guided {
        self.engine().guided()
    }

    /// Runs a step, and lets go of all that it leaves. Returns the cost of its replays.
    ///
    /// # Errors
    /// The refusal that ended the step.
    fn run(&mut self, events: &[Event]) -> Result<u64, Error> {
        let before = self.engine().counters().replayed_cost.0;
        let fed = events.iter().try_for_each(|event| {
            let planned = self.guided().steps;
            let fed = self.replayer.feed(event);
            let rested = self.guided().steps == planned;
            let engine = self.replayer.engine_mut();
            if let (Some(StepMark::Ended(hash)), Some(times)) = (engine.step_mark(), self.clock) {
                engine.step_took(hash, if rested { times.1 } else { times.0 });
            }
            fed
        });
        self.replayer.release_all().expect("references");
        fed.map(|()| self.engine().counters().replayed_cost.0 - before)
    }

    /// Runs a step, and follows a plan from then on if one was recorded.
    fn step(&mut self, events: &[Event]) -> u64 {
        let replayed = self.run(events).expect("room");
        if let Some(recorded) = self.replayer.engine_mut().recorded_step() {
            self.follow(&recorded);
        }
        replayed
    }

    fn follow(&mut self, recorded: &Recorded) {
        let asked = Asked {
            budget: self.budget.0,
            bytes: self.budget.0,
            iterations: 100,
            keeps: self.keeps,
        };
        let (plan, guide) = if self.anew {
            asked.plan(recorded)
        } else {
            asked.plan_once(recorded)
        };
        self.planned.push(plan.recompute_ns);
        self.plans.add(PlannedStep::new(&plan, guide.clone()));
        self.replayer.engine_mut().follow(guide);
    }
}

/// Traces, and budgets as percentages of their peaks.
const CASES: [(&str, u64); 5] = [
    ("gpt", 60),
    ("gpt", 50),
    ("unet", 60),
    ("resnet", 60),
    ("gan", 70),
];

fn at((name, percent): (&str, u64)) -> (Vec<Event>, u64) {
    let events = recorded(name);
    let budget = peak(&events) / 100 * percent;
    (events, budget)
}

/// Another engine is told of the plans before its first op, as a file holds them, and learns no steps.
#[test]
fn plans_are_followed_by_another_engine_from_its_second_step_on() {
    for case in CASES {
        let (events, budget) = at(case);
        let mut first = Program::new(budget);
        let replayed: Vec<u64> = (0..10).map(|_| first.step(&events)).collect();
        let plans = PlannedSteps::from_json(&first.plans.to_json()).expect("as written");
        assert_eq!(plans, first.plans);
        let mut second = Program::unlearned(budget);
        let engine = second.replayer.engine_mut();
        plans
            .steps
            .into_iter()
            .for_each(|step| engine.follow(step.guide));
        let again: Vec<u64> = (0..4).map(|_| second.step(&events)).collect();
        assert!(
            second.guided().steps >= 2,
            "{case:?}: {:?}",
            second.guided()
        );
        assert_eq!(second.planned.len(), 0);
        assert!(
            again[3].abs_diff(replayed[9]) <= replayed[9] / 100,
            "{case:?}: {again:?} as {replayed:?}"
        );
    }
}

/// The guide of the step that the program planned, as if it saved so many thousandths of the time of the step's ops.
fn guide_that_saves(program: &Program, thousandths: u64) -> Guide {
    let planned = program.plans.steps[0].guide.planned();
    guide_that_replays(program, planned.replayed, thousandths)
}

/// The same, as if it replayed so much.
fn guide_that_replays(program: &Program, replayed: Cost, thousandths: u64) -> Guide {
    let guide = &program.plans.steps[0].guide;
    let places = 0..guide.signatures().len();
    let before: Vec<_> = places.map(|at| guide.before(at).to_vec()).collect();
    let first = guide.planned().first;
    let online = StepCosts {
        first,
        replayed: Cost(replayed.0 + first.0 * thousandths / 1000),
    };
    let planned = StepCosts { first, replayed };
    Guide::new(guide.signatures().to_vec(), &before, online, planned).expect("as it was")
}

/// A program that planned its step, and the costs of replays in a step online and as planned.
fn after_planning(case: (&str, u64)) -> (Program, Vec<Event>, u64, u64) {
    let (events, budget) = at(case);
    let mut program = Program::new(budget);
    let replayed: Vec<u64> = (0..10).map(|_| program.step(&events)).collect();
    (program, events, replayed[1], replayed[9])
}

/// How many of so many steps replay as much as online, and what the last one replays.
fn rested(program: &mut Program, events: &[Event], steps: u32, online: u64) -> (usize, u64) {
    let tried: Vec<u64> = (0..steps).map(|_| program.step(events)).collect();
    let near = |&&step: &&u64| step.abs_diff(online) <= online / 100;
    let last = tried[tried.len() - 1];
    (tried.iter().filter(near).count(), last)
}

/// A guide that saves little rests in turn, and is given up if steps are shorter without it. It is not learned again.
#[test]
fn a_guide_that_saves_little_is_tried_by_the_clock() {
    for case in CASES {
        for (times, given_up) in [((100, 99), 0), ((100, 97), 1)] {
            let (mut program, events, online, planned) = after_planning(case);
            let guide = guide_that_saves(&program, 20);
            program.replayer.engine_mut().follow(guide);
            program.clock = Some(times);
            // The step that was learned begins amid the recorded one, so one passes before the trial.
            let (resting, _) = rested(&mut program, &events, 20, online);
            assert!((7..=9).contains(&resting), "{case:?}: {resting}");
            let (_, last) = rested(&mut program, &events, 4, online);
            let wanted = if given_up == 1 { online } else { planned };
            assert!(
                last.abs_diff(wanted) <= wanted / 100,
                "{case:?}: {last}, wanted {wanted}"
            );
            assert_eq!(program.guided().given_up, given_up, "{case:?}");
            let last: Vec<u64> = (0..8).map(|_| program.step(&events)).collect();
            assert_eq!(last == [online; 8], given_up == 1, "{case:?}");
            let guides = 1 - given_up;
            assert_eq!(
                (program.guided().guides, program.planned.len()),
                (guides, 1)
            );
        }
    }
}

/// A guide that stayed after its trial is followed by a better one without another trial, and by a worse one with it.
#[test]
fn a_better_guide_than_one_that_stayed_is_not_tried() {
    for case in CASES {
        let (mut program, events, online, _) = after_planning(case);
        let replayed = program.plans.steps[0].guide.planned().replayed;
        let Cost(first) = program.plans.steps[0].guide.planned().first;
        program.clock = Some((100, 99));
        for (more, tried) in [(0, true), (0, false), (1 + first / 1000, true)] {
            let guide = guide_that_replays(&program, Cost(replayed.0 + more), 20);
            program.replayer.engine_mut().follow(guide);
            let (resting, _) = rested(&mut program, &events, 24, online);
            assert_eq!(resting >= 7, tried, "{case:?}, {more} more: {resting}");
            assert_eq!(resting <= 1, !tried, "{case:?}, {more} more: {resting}");
        }
        assert_eq!(program.guided().given_up, 0, "{case:?}");
    }
}

/// Costs that are measured again move a little; a guide is not given up for that.
#[test]
fn a_guide_is_given_up_that_replays_far_more_than_online() {
    for case in CASES {
        for (too_much, given_up) in [(9, 0), (12, 1)] {
            let (mut program, events, ..) = after_planning(case);
            let guide = &program.plans.steps[0].guide;
            let StepCosts { first, replayed } = guide.planned();
            // As if online replayed so many thousandths of the step less.
            let less = Cost(replayed.0.saturating_sub(first.0 * too_much / 1000));
            let guide = guide_that_replays(&program, less, 0);
            program.replayer.engine_mut().follow(guide);
            for _ in 0..6 {
                program.step(&events);
            }
            assert_eq!(program.guided().given_up, given_up, "{case:?}, {too_much}");
        }
    }
}

/// Where nobody tells how long steps take, no guide is tried, nor is one that saves enough.
#[test]
fn a_guide_that_saves_enough_is_not_tried() {
    for case in CASES {
        let (events, budget) = at(case);
        let mut program = Program::new(budget);
        let replayed: Vec<u64> = (0..10).map(|_| program.step(&events)).collect();
        let guide = guide_that_saves(&program, 40);
        program.replayer.engine_mut().follow(guide);
        program.clock = Some((100, 1));
        let sure: Vec<u64> = (0..24).map(|_| program.step(&events)).collect();
        program.clock = None;
        let guide = guide_that_saves(&program, 20);
        program.replayer.engine_mut().follow(guide);
        let untold: Vec<u64> = (0..8).map(|_| program.step(&events)).collect();
        let near = |step: &u64| step.abs_diff(replayed[9]) <= replayed[9] / 100;
        assert!(
            sure[1..].iter().all(near),
            "{case:?}: {sure:?} as {replayed:?}"
        );
        assert!(
            untold[1..].iter().all(near),
            "{case:?}: {untold:?} as {replayed:?}"
        );
        assert_eq!(program.guided().given_up, 0);
    }
}

/// The same step where every second op takes so many times as long.
fn slower(events: &[Event], times: u64) -> Vec<Event> {
    let mut events = events.to_vec();
    let costs = events.iter_mut().filter_map(|event| match event {
        Event::Op { cost, .. } => Some(cost),
        _ => None,
    });
    costs.step_by(2).for_each(|cost| *cost *= times);
    events
}

/// Where ops come to take longer, the step is planned again, and as little is replayed as if it had been planned then.
#[test]
fn a_step_whose_costs_moved_is_planned_again() {
    // The GAN with such costs is refused online.
    for case in CASES.into_iter().filter(|case| case.0 != "gan") {
        let (events, budget) = at(case);
        let moved = slower(&events, 4);
        let mut fresh = Program::new(budget);
        let wanted: Vec<u64> = (0..10).map(|_| fresh.step(&moved)).collect();
        let mut program = Program::new(budget);
        for _ in 0..30 {
            program.step(&events);
        }
        assert_eq!(program.planned.len(), 1, "{case:?}");
        let steps: Vec<u64> = (0..20).map(|_| program.step(&moved)).collect();
        assert_eq!(program.planned.len(), 2, "{case:?}: {:?}", program.guided());
        assert!(
            steps[19] <= wanted[9] + wanted[9] / 50,
            "{case:?}: {steps:?}, where {wanted:?}"
        );
        assert!(steps[19] <= steps[4], "{case:?}: {steps:?}");
    }
}

/// Once the plan is followed, a step takes as long as planned, within a hundredth, and less than without it.
#[test]
fn a_step_that_repeats_is_recorded_planned_and_followed() {
    for case in CASES {
        let (events, budget) = at(case);
        let mut program = Program::new(budget);
        let replayed: Vec<u64> = (0..10).map(|_| program.step(&events)).collect();
        let planned = *program.planned.first().expect("a step was recorded");
        let guided = program.guided();
        // A plan may be adopted amid a step, where ops come that begin a step too.
        assert!(guided.steps >= 4 && guided.departures <= 2, "{guided:?}");
        assert_eq!((guided.refused, guided.given_up), (0, 0), "{case:?}");
        let (online, last) = (replayed[1], replayed[9]);
        assert!(
            last.abs_diff(planned) <= planned / 100,
            "{case:?}: {last} for {planned}"
        );
        assert!(last < online * 9 / 10, "{case:?}: {last} for {online}");
        assert!(program.engine().peak(DeviceId(0)).0 <= budget);
    }
}

#[test]
fn a_plan_that_replays_more_than_the_step_did_is_none() {
    let (events, budget) = at(("unet", 60));
    let mut program = Program::new(budget);
    let mut recorded = (0..10).find_map(|_| {
        program.run(&events).expect("room");
        program.replayer.engine_mut().recorded_step()
    });
    let recorded = recorded.as_mut().expect("a step was recorded");
    let mut plan = |replayed| {
        recorded.replayed = replayed;
        let search = Search {
            iterations: Some(100),
            ..Search::default()
        };
        let watch = &mut |_: &_| ControlFlow::Continue(());
        Learned::new(recorded).plan(Bytes(budget), search, watch)
    };
    let (found, _) = plan(Cost(u64::MAX)).expect("a plan");
    let planned = Cost(found.recompute_ns);
    // A plan spares records and searches too: it is followed though it replays as much as a hundredth of the step more.
    let least = planned.0 - found.cost_ns / 100;
    assert!(plan(Cost(least)).is_ok());
    let replayed = Cost(least - 1);
    let refused = plan(replayed).map(|(plan, _)| plan);
    assert_eq!(refused, Err(StepError::NoGain { planned, replayed }));
}

#[test]
fn the_same_steps_give_the_same_decisions() {
    let (events, budget) = at(("unet", 60));
    let run = || {
        let mut program = Program::new(budget);
        program.anew = true;
        let replayed: Vec<u64> = (0..8).map(|_| program.step(&events)).collect();
        let state = format!("{:?}", program.engine());
        (replayed, program.guided(), state)
    };
    assert_eq!(run(), run());
}

/// Steps of another program come in between, and one that ends early.
#[test]
fn a_program_that_departs_is_followed_again_from_its_next_step() {
    let (events, other) = (recorded("unet"), recorded("resnet"));
    let budget = peak(&events).max(peak(&other)) / 100 * 70;
    let mut program = Program::new(budget);
    for _ in 0..7 {
        program.step(&events);
    }
    let planned = program.planned[0];
    let early = &events[..events.len() * 2 / 3];
    for between in [early, &other, early, &early[..events.len() / 3]] {
        program.step(between);
        let next = program.step(&events);
        assert!(next <= planned + planned / 50, "{next} for {planned}");
        program.step(&events);
    }
    assert!(program.guided().departures > 0);
    assert!(program.engine().peak(DeviceId(0)).0 <= budget);
}

/// Two kinds of step have a plan each.
#[test]
fn two_programs_are_followed_side_by_side() {
    let traces = [recorded("unet"), recorded("resnet")];
    let [one, other] = traces.each_ref().map(|events| peak(events));
    let mut program = Program::new(one.max(other) / 100 * 60);
    for events in &traces {
        for _ in 0..6 {
            program.step(events);
        }
    }
    assert_eq!(program.guided().guides, 2);
    for _ in 0..3 {
        for (events, planned) in traces.iter().zip(program.planned.clone()) {
            let replayed = program.step(events);
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
    follow_wrong_plans(&CASES, wrong);
}

/// The same, where they also keep one result in four.
#[test]
fn wrong_plans_that_keep_results_do_little_harm() {
    let small = CASES
        .iter()
        .filter(|case| ["gan", "resnet"].contains(&case.0));
    let small: Vec<_> = small.copied().collect();
    follow_wrong_plans(&small, |recorded, draws| {
        let results = (0..recorded.signatures.len() as u32).flat_map(|op| [(op, 0), (op, 1)]);
        let kept = results.filter(|_| draws.next() % 4 == 0).collect();
        let guide = wrong(recorded, draws).with_kept(kept);
        guide.expect("results of the step, rising")
    });
}

fn follow_wrong_plans(cases: &[(&str, u64)], wrong: impl Fn(&Recorded, &mut Draws) -> Guide) {
    let mut refused = 0;
    for (&case, seed) in cases.iter().zip(0..) {
        let (events, budget) = at(case);
        let mut draws = Draws(seed);
        let mut program = Program::new(budget);
        for _ in 0..10 {
            refused += usize::from(program.run(&events).is_err());
            if let Some(recorded) = program.replayer.engine_mut().recorded_step() {
                let guide = wrong(&recorded, &mut draws);
                program.replayer.engine_mut().follow(guide);
            }
        }
        let guided = program.guided();
        assert!(
            guided.ops > 0 && guided.given_up > 0,
            "{case:?}: {guided:?}"
        );
        assert!(program.engine().peak(DeviceId(0)).0 <= budget);
    }
    assert!(refused <= 5, "{refused} of {} steps", 10 * cases.len());
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
    let costs = recorded.costs();
    Guide::new(recorded.signatures.clone(), &actions, costs, costs).expect("earlier ops")
}

#[test]
fn a_guide_names_ops_before_its_own_and_each_op_has_a_list() {
    let drop = |op| vec![GuideAction::Drop { op, output: 0 }];
    let made = |signatures: &[u64], actions: &[Vec<GuideAction>]| {
        Guide::new(
            signatures.to_vec(),
            actions,
            StepCosts::default(),
            StepCosts::default(),
        )
    };
    assert!(made(&[1, 2], &[vec![], drop(0)]).is_ok());
    assert_eq!(made(&[1, 2], &[vec![], drop(1)]), Err(InvalidGuide));
    assert_eq!(made(&[1, 2], &[drop(0), vec![]]), Err(InvalidGuide));
    assert_eq!(made(&[1, 2], &[vec![]]), Err(InvalidGuide));
    assert_eq!(made(&[], &[]), Err(InvalidGuide));
}

/// A plan of a step within so many bytes of a budget, and its guide.
fn planned_beyond(recorded: &Recorded, budget: u64, bytes: u64) -> (StepPlan, Guide) {
    let asked = Asked {
        budget,
        bytes,
        iterations: 20,
        keeps: false,
    };
    asked.plan_once(recorded)
}

#[test]
fn a_plan_beyond_the_budget_forgoes_records_as_the_budget_allows() {
    for case in CASES {
        let (events, budget) = at(case);
        let (recorded, plan, guide) = planned(&events, budget);
        let (beyond, other) = planned_beyond(&recorded, 0, budget);
        assert_eq!(beyond, plan, "{case:?}");
        let (all, fewer) = (guide.unrecorded().len(), other.unrecorded().len());
        assert!(fewer < all, "{case:?}: {fewer} of {all}");
    }
}

#[test]
fn a_plan_beyond_the_budget_that_replays_much_forgoes_no_record() {
    let mut kinds = [0, 0];
    for case in CASES {
        let (events, budget) = at(case);
        let (recorded, plan, guide) = planned(&events, budget);
        let (_, beyond) = planned_beyond(&recorded, plan.peak_bytes - 1, budget);
        let much = plan.recompute_ns > plan.cost_ns / 20;
        assert!(!guide.unrecorded().is_empty(), "{case:?}");
        assert_eq!(beyond.unrecorded().is_empty(), much, "{case:?}");
        kinds[usize::from(much)] += 1;
    }
    assert!(kinds.iter().all(|&cases| cases > 0), "{kinds:?}");
}

#[test]
fn files_hold_all_of_a_guide() {
    for case in CASES {
        let (events, budget) = at(case);
        let (_, plan, guide) = planned(&events, budget);
        let most = guide.unrecorded_most().expect("ops without records");
        assert!(0 < most.0 && most.0 <= budget / 4, "{case:?}: {most:?}");
        let mut plans = PlannedSteps::new("cpu", budget);
        plans.add(PlannedStep::new(&plan, guide.clone()));
        let read = PlannedSteps::from_json(&plans.to_json()).expect("as written");
        assert_eq!(read, plans, "{case:?}");
        let adopted = Event::Plan(Planning::Follow(Box::new(guide)));
        let line = serde_json::to_string(&adopted).expect("lists of numbers");
        let read: Event = serde_json::from_str(&line).expect("as written");
        assert_eq!(read, adopted, "{case:?}");
    }
}

/// The step of a recorded program, a plan and its guide.
fn planned(events: &[Event], budget: u64) -> (Recorded, StepPlan, Guide) {
    let mut program = Program::new(budget);
    for _ in 0..10 {
        program.run(events).expect("room");
        if let Some(recorded) = program.replayer.engine_mut().recorded_step() {
            let (plan, guide) = planned_beyond(&recorded, budget, budget);
            return (recorded, plan, guide);
        }
    }
    panic!("no step was learned");
}

/// A plan that may keep what the program lets go of is followed as planned, and replays far less where a value is read
/// again after that.
#[test]
fn results_that_a_plan_keeps_are_not_made_again() {
    for (case, far_less) in [
        (("gpt", 60), false),
        (("unet", 60), false),
        (("gan", 65), true),
        (("lstm", 60), true),
    ] {
        let (events, budget) = at(case);
        let [without, with] = [false, true].map(|keeps| {
            let mut program = Program::new(budget);
            program.keeps = keeps;
            let replayed: Vec<u64> = (0..10).map(|_| program.step(&events)).collect();
            let planned = program.planned[program.planned.len() - 1];
            assert!(
                replayed[9].abs_diff(planned) <= planned / 100,
                "{case:?}: {replayed:?}, planned {planned}"
            );
            assert_eq!(program.guided().refused, 0, "{case:?}");
            assert!(program.engine().peak(DeviceId(0)).0 <= budget, "{case:?}");
            let kept = program
                .plans
                .steps
                .iter()
                .map(|step| step.guide.kept().len());
            let kept: usize = kept.sum();
            assert!(keeps || kept == 0, "{case:?}");
            assert!(kept > 0 || !(keeps && far_less), "{case:?}");
            let plans = PlannedSteps::from_json(&program.plans.to_json()).expect("as written");
            assert_eq!(plans, program.plans);
            planned
        });
        let cost: u64 = cost(&events);
        assert!(
            with <= without + cost / 200,
            "{case:?}: {with} after {without}"
        );
        assert!(
            !far_less || with + cost / 100 < without,
            "{case:?}: {with} after {without}"
        );
    }
}

/// The cost of a step's ops, each once.
fn cost(events: &[Event]) -> u64 {
    let costs = events.iter().map(|event| match event {
        Event::Op { cost, .. } => *cost,
        _ => 0,
    });
    costs.sum()
}

/// Storages that the program lets go of soon are dropped where that keeps the plan's peak, and not otherwise.
#[test]
fn few_drops_are_of_what_goes_anyway() {
    for case in CASES {
        let (events, budget) = at(case);
        let (_, plan, guide) = planned(&events, budget);
        let places = 0..guide.signatures().len();
        let dropped = places.flat_map(|place| guide.before(place));
        let dropped = dropped.filter(|action| matches!(action, GuideAction::Drop { .. }));
        let (dropped, frees) = (dropped.count(), plan.steps.iter());
        let frees = frees.filter(|step| matches!(step, Action::Free(_))).count();
        assert!(dropped * 2 < frees, "{case:?}: {dropped} of {frees}");
    }
}

/// A search that goes on from a plan never comes to a dearer one, and starts where that one ended.
#[test]
fn a_search_goes_on_from_a_plan() {
    for case in CASES {
        let (events, budget) = at(case);
        let (recorded, first, _) = planned(&events, budget);
        let learned = Learned::new(&recorded);
        let again = learned.reruns(&first);
        let runs = |plan: &StepPlan| {
            let ops = plan.steps.iter().filter_map(|step| match *step {
                Action::Run(op) | Action::RunInPlace(op) => Some(op),
                Action::Free(_) => None,
            });
            let ops: Vec<u32> = ops.collect();
            ops.len() - ops.iter().collect::<HashSet<_>>().len()
        };
        assert_eq!(again.len(), runs(&first), "{case:?}");
        let search = Search {
            iterations: Some(0),
            known: vec![again],
            ..Search::default()
        };
        // What the search would find by itself is not looked for.
        let watch = &mut |_: &_| ControlFlow::Break(());
        let (second, _) = learned.plan(Bytes(budget), search, watch).expect("a plan");
        assert!(
            second.recompute_ns <= first.recompute_ns,
            "{case:?}: {} after {}",
            second.recompute_ns,
            first.recompute_ns
        );
    }
}
