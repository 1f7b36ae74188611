//! Which ops a policy replays, and where.

use remat_core::{Bytes, Policy};
use remat_sim::{Budget, Program, Reruns, Setting, Status};
use remat_trace::{Event, Rerun, TraceOutput, TraceOutputKind};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

const POLICIES: [&str; 3] = ["dtr", "dtr-eq", "dtr-anc"];

fn policy(name: &str) -> Policy {
    name.parse().expect("a policy")
}

fn traces() -> impl Iterator<Item = PathBuf> {
    let names = ["gan", "gpt", "lstm", "resnet", "treelstm", "unet"];
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces");
    names
        .map(|name| folder.join(format!("{name}.trace.zst")))
        .into_iter()
}

fn events(path: &Path) -> Vec<Event> {
    let read: Result<Vec<Event>, _> = remat_trace::open(path).expect("a trace").collect();
    read.expect("a whole trace")
}

/// Plays a schedule without dropping anything but what ops write into: each run finds its inputs made. Returns the cost
/// of runs again.
fn played(events: &[Event], reruns: &Reruns) -> u64 {
    let mut made: HashMap<u64, usize> = HashMap::new();
    let mut ops: Vec<&Event> = Vec::new();
    let (mut next, mut cost) = (0, 0);
    let counted = events
        .iter()
        .filter(|event| !matches!(event, Event::Mark { .. }));
    for (index, event) in counted.enumerate() {
        while let Some(rerun) = reruns
            .runs
            .get(next)
            .filter(|rerun| rerun.event as usize == index)
        {
            let Some(Event::Op {
                inputs,
                cost: one,
                replay,
                outputs,
                ..
            }) = ops.get(rerun.op as usize)
            else {
                panic!("op {} is a constant, or comes later", rerun.op);
            };
            assert!(*replay && inputs.iter().all(|input| made.contains_key(input)));
            assert!(
                outputs
                    .iter()
                    .all(|output| made[&output.tensor] == rerun.op as usize)
            );
            cost += one;
            next += 1;
        }
        match event {
            Event::Constant { tensor, .. } => {
                made.insert(*tensor, ops.len());
                ops.push(event);
            }
            Event::Op { outputs, .. } => {
                made.extend(outputs.iter().map(|output| (output.tensor, ops.len())));
                ops.push(event);
            }
            _ => {}
        }
    }
    assert_eq!(next, reruns.runs.len(), "events rise");
    cost
}

#[test]
fn the_schedule_of_a_run_is_that_of_its_outcome() {
    for path in traces() {
        let (program, events) = (Program::open(&path).expect("a trace"), events(&path));
        let base = program.base().expect("a sound trace");
        // The largest step takes a while to decide about.
        let large = path.ends_with("treelstm.trace.zst");
        for name in if large { &["dtr-eq"][..] } else { &POLICIES } {
            for ratio in if large { &[0.9][..] } else { &[1.0, 0.7, 0.5] } {
                let budget = Budget::Ratio(*ratio);
                let setting = Setting {
                    policy: policy(name).into(),
                    budget,
                    ..Setting::default()
                };
                let outcome = program.run(&base, &setting).expect("a sound trace");
                let found = program
                    .reruns(&base, policy(name), budget)
                    .expect("a sound trace");
                assert_eq!(found.is_some(), outcome.status == Status::Ok);
                let Some(found) = found else { continue };
                assert_eq!(found.runs.len() as u64, outcome.counters.replays);
                assert_eq!(
                    (found.cost, found.peak),
                    (outcome.counters.replayed_cost, outcome.peak)
                );
                assert_eq!(
                    played(&events, &found),
                    found.cost.0,
                    "{} {name} {ratio}",
                    path.display()
                );
            }
        }
    }
}

#[test]
fn a_budget_that_cannot_be_met_has_no_schedule() {
    let program = Program::open(traces().next().expect("a trace")).expect("a trace");
    let base = program.base().expect("a sound trace");
    let found = program.reruns(&base, Policy::default(), Budget::Ratio(0.001));
    assert_eq!(found, Ok(None));
}

#[test]
fn remarks_and_constants_count_as_in_the_recording() {
    let op = |input: u64, tensor: u64, bytes: u64| Event::Op {
        name: "op".into(),
        inputs: vec![input],
        outputs: vec![TraceOutput {
            tensor,
            kind: TraceOutputKind::Fresh { bytes, device: 0 },
        }],
        workspace: 0,
        workspace_device: 0,
        cost: 5,
        replay: true,
    };
    let constant = |tensor| Event::Constant {
        tensor,
        bytes: 10,
        device: 0,
    };
    let mark = Event::Mark {
        name: "forward".into(),
    };
    let events = [
        constant(0),
        mark.clone(),
        constant(9),
        op(0, 1, 60),
        op(9, 2, 60),
        mark,
        Event::Release { tensor: 2 },
        op(1, 3, 30),
    ];
    let program: Program = events.iter().collect();
    let base = program.base().expect("a sound step");
    // Op 2 made tensor 1, which went for tensor 2; it runs again before the sixth event, remarks not counted.
    let budget = Budget::Bytes(Bytes(139));
    let found = program
        .reruns(&base, Policy::default(), budget)
        .expect("a sound step");
    let runs = found.expect("a run that fits").runs;
    assert_eq!(runs, [Rerun { op: 2, event: 5 }]);
}
