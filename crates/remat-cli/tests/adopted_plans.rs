//! Recorded runs that adopted a plan: written, read, looked at, and run again.

mod desk;

use desk::Desk;
use remat_core::{Bytes, Config, DeviceId, Step};
use remat_plan::step::{Learned, Search};
use remat_trace::{Event, Planning, Replayer, TraceOutput, TraceWriter, open};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// The events of a step, with other ids, and then releases of all that it leaves.
fn again(events: &[Event], number: u64) -> Vec<Event> {
    let id = |tensor: u64| tensor + number * 1_000_000;
    let mut held: BTreeMap<u64, u64> = BTreeMap::new();
    let mut told: Vec<Event> = Vec::new();
    for event in events {
        let mut event = event.clone();
        match &mut event {
            Event::Constant { tensor, .. } => {
                *tensor = id(*tensor);
                held.insert(*tensor, 1);
            }
            Event::Op {
                inputs, outputs, ..
            } => {
                inputs.iter_mut().for_each(|input| *input = id(*input));
                for TraceOutput { tensor, .. } in outputs {
                    *tensor = id(*tensor);
                    held.insert(*tensor, 1);
                }
            }
            Event::Retain { tensor } => {
                *tensor = id(*tensor);
                *held.entry(*tensor).or_default() += 1;
            }
            Event::Release { tensor } => {
                *tensor = id(*tensor);
                *held.entry(*tensor).or_default() -= 1;
            }
            Event::Pin { tensor } => *tensor = id(*tensor),
            Event::Ensure { tensors } => {
                tensors.iter_mut().for_each(|tensor| *tensor = id(*tensor))
            }
            Event::Mark { .. } | Event::Plan(_) => {}
        }
        told.push(event);
    }
    for (tensor, references) in held {
        told.extend((0..references).map(|_| Event::Release { tensor }));
    }
    told
}

/// An engine that runs a program, and the steps that it asked for.
struct Run {
    replayer: Replayer,
    steps: Vec<Step>,
    events: Vec<Event>,
}

impl Run {
    fn new(budget: u64) -> Run {
        let config = Config {
            budgets: vec![Some(Bytes(budget))],
            ..Config::default()
        };
        Run {
            replayer: Replayer::new(config),
            steps: Vec::new(),
            events: Vec::new(),
        }
    }

    fn tell(&mut self, event: Event) {
        let steps = &mut self.steps;
        let watch = &mut |engine: &remat_core::Engine| steps.extend_from_slice(engine.steps());
        self.replayer.feed_watched(&event, watch).expect("room");
        self.events.push(event);
    }
}

fn trace(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../traces/{name}.trace.zst"))
}

/// Eight steps, of which the later ones run as planned, and their budget.
fn live() -> (Run, u64) {
    let reader = open(trace("lstm")).unwrap();
    let step: Vec<Event> = reader.map(|event| event.unwrap()).collect();
    let mut free = Replayer::new(Config::default());
    step.iter().for_each(|event| free.feed(event).unwrap());
    let budget = free.engine().peak(DeviceId(0)).0 * 4 / 5;
    let mut run = Run::new(budget);
    run.tell(Event::Plan(Planning::Learn { device: 0 }));
    for number in 0..8 {
        again(&step, number)
            .into_iter()
            .for_each(|event| run.tell(event));
        if let Some(recorded) = run.replayer.engine_mut().recorded_step() {
            let search = Search {
                iterations: Some(20),
                ..Search::default()
            };
            let watch = &mut |_: &_| ControlFlow::Continue(());
            let learned = Learned::new(&recorded);
            let (_, guide) = learned.plan(Bytes(budget), search, watch).expect("a plan");
            run.tell(Event::Plan(Planning::Follow(Box::new(guide))));
        }
    }
    (run, budget)
}

fn written(desk: &Desk, events: &[Event]) -> PathBuf {
    let path = desk.folder.path().join("run.trace.zst");
    let mut writer = TraceWriter::create(&path).unwrap();
    events.iter().for_each(|event| writer.write(event).unwrap());
    writer.finish().unwrap();
    path
}

#[test]
fn a_recorded_run_that_adopted_a_plan_replays_to_the_same_decisions() {
    let (live, budget) = live();
    assert!(
        live.replayer.engine().guided().steps >= 2,
        "{:?}",
        live.replayer.engine().guided()
    );
    let desk = Desk::new();
    let path = written(&desk, &live.events);
    let mut replay = Run::new(budget);
    for event in open(&path).unwrap() {
        replay.tell(event.unwrap());
    }
    assert_eq!(replay.events, live.events);
    assert!(
        replay.steps == live.steps,
        "the engine asked for other steps"
    );
    let (now, then) = (replay.replayer.engine(), live.replayer.engine());
    assert_eq!(now.guided(), then.guided());
    assert_eq!(format!("{now:?}"), format!("{then:?}"));
    // Without the plan the engine decides otherwise, so the event is what makes it decide alike.
    let mut online = Run::new(budget);
    let without = live
        .events
        .iter()
        .filter(|event| !matches!(event, Event::Plan(_)));
    without.for_each(|event| online.tell(event.clone()));
    assert!(online.steps != live.steps);
}

#[test]
fn commands_know_adopted_plans() {
    let (live, budget) = live();
    let desk = Desk::new();
    written(&desk, &live.events);
    let info: Value =
        serde_json::from_str(&desk.told(&["trace", "info", "run.trace.zst", "--json"])).unwrap();
    assert_eq!(info["plans"], 1);
    assert!(
        desk.told(&["trace", "info", "run.trace.zst"])
            .contains("plans adopted")
    );
    desk.told(&["trace", "check", "run.trace.zst"]);
    desk.told(&["trace", "convert", "run.trace.zst", "copy.trace"]);
    let copy: Value =
        serde_json::from_str(&desk.told(&["trace", "info", "copy.trace", "--json"])).unwrap();
    assert_eq!(copy["plans"], 1);
    let lost = desk
        .remat(&["trace", "convert", "run.trace.zst", "run.log"])
        .output()
        .unwrap();
    let lost = String::from_utf8(lost.stderr).unwrap();
    assert!(lost.contains("1 plans of steps"), "{lost}");
    let budget = budget.to_string();
    let simulate = [
        "simulate",
        "run.trace.zst",
        "--policy",
        "dtr-eq",
        "--budget",
        &budget,
        "--json",
    ];
    let row = desk.told(&[&simulate[..], &["--adopted"]].concat());
    let row: Value = serde_json::from_str(&row).unwrap();
    let engine = live.replayer.engine();
    let counters = engine.counters();
    assert_eq!(row["status"], "ok");
    assert_eq!(row["remat_cost"], counters.replayed_cost.0);
    assert_eq!(row["rematerializations"], counters.replays);
    assert_eq!(row["evictions"], counters.evictions);
    assert_eq!(row["peak_bytes"], engine.peak(DeviceId(0)).0);
    assert_eq!(row["clock"], engine.clock());
    let log = trace("lstm").display().to_string();
    let reason = desk.refused(&["simulate", &log, "--adopted"], 1);
    assert!(reason.contains("adopted no plan"), "{reason}");
}

#[test]
fn plans_that_contradict_themselves_are_refused_with_their_line() {
    let plan = |inner: &str| {
        format!("{{\"remat-trace\":1}}\n{{\"plan\":{inner}}}\n{{\"end\":{{\"events\":1}}}}\n")
    };
    let digits = "00000000000000a100000000000000a2";
    let follow = |version: u32, signatures: &str, actions: &str| {
        plan(&format!(
            r#"{{"follow":{{"v":{version},"s":"{signatures}","a":{actions},"c":[9,3,9,2]}}}}"#
        ))
    };
    let desk = Desk::new();
    desk.file(
        "run.trace",
        follow(1, digits, r#"[[1,"run",0,"in place"]]"#),
    );
    desk.told(&["trace", "check", "run.trace"]);
    for (text, reason) in [
        (follow(2, digits, "[]"), "a plan of version 2"),
        (follow(1, "00a1", "[]"), "16 hexadecimal digits"),
        (follow(1, "zz", "[]"), "16 hexadecimal digits"),
        (follow(1, "é000000000000000", "[]"), "16 hexadecimal digits"),
        (follow(1, "", "[]"), "a guide needs"),
        (follow(1, digits, r#"[[2,"run",0]]"#), "before op 2"),
        (follow(1, digits, r#"[[0,"run",0]]"#), "of ops before it"),
        (
            follow(1, digits, r#"[[1,"drop",4294967295,0]]"#),
            "of ops before it",
        ),
        (follow(1, digits, r#"[[1,"keep",0]]"#), "did not match"),
        (plan(r#""remember""#), "unknown variant"),
        (plan(r#"{"took":{"h":"x","c":1}}"#), "no number"),
    ] {
        desk.file("run.trace", text);
        let told = desk.refused(&["trace", "check", "run.trace"], 1);
        assert!(
            told.contains("run.trace:2:") && told.contains(reason),
            "{told}"
        );
    }
}
