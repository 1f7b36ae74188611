//! Logs become traces as appendix C.6 of the DTR paper says, and traces become logs.

mod valid_traces;

use proptest::prelude::*;
use remat_trace::convert::{FromDtr, Lost, ToDtr};
use remat_trace::dtr::{Instruction, LogReader, LogWriter};
use remat_trace::{Event, Format, Limits, TraceOutput, TraceOutputKind, Validator, open};
use std::collections::{HashSet, VecDeque};
use valid_traces::valid_traces;

/// All eight instructions.
const LOG: &str = r#"{"INSTRUCTION":"CONSTANT","NAME":"before"}
{"INSTRUCTION":"MEMORY","NAME":"before","MEMORY":"1"}
{"INSTRUCTION":"ANNOTATE","ANNOTATION":"START"}
{"INSTRUCTION":"CONSTANT","NAME":"w"}
{"INSTRUCTION":"MEMORY","NAME":"w","MEMORY":"64"}
{"INSTRUCTION":"COPY","DST":"v","SRC":"w"}
{"INSTRUCTION":"RELEASE","NAME":"w"}
{"INSTRUCTION":"CALL","NAME":"mm","ARGS":["v","v"],"RESULT":["a","b"],"TIME":"500"}
{"INSTRUCTION":"MEMORY","NAME":"a","MEMORY":"32"}
{"INSTRUCTION":"ALIAS","NAME":"a","ALIAS":"-1"}
{"INSTRUCTION":"MEMORY","NAME":"b","MEMORY":"64"}
{"INSTRUCTION":"ALIAS","NAME":"b","ALIAS":"1"}
{"INSTRUCTION":"ANNOTATE","ANNOTATION":"BACKWARD"}
{"INSTRUCTION":"MUTATE","NAME":"add_","ARGS":["b","a"],"MUTATE":[0],"TIME":"70"}
{"INSTRUCTION":"COPY_FROM","DST":"a","SRC":"b"}
{"INSTRUCTION":"RELEASE","NAME":"unknown"}
"#;

fn fresh(tensor: u64, bytes: u64) -> TraceOutput {
    TraceOutput {
        tensor,
        kind: TraceOutputKind::Fresh { bytes, device: 0 },
    }
}

fn op(name: &str, inputs: &[u64], outputs: Vec<TraceOutput>, cost: u64) -> Event {
    let (name, inputs) = (name.to_owned(), inputs.to_vec());
    Event::Op {
        name,
        inputs,
        outputs,
        workspace: 0,
        workspace_device: 0,
        cost,
        replay: true,
    }
}

#[test]
fn a_log_becomes_a_trace() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("step.log");
    std::fs::write(&path, LOG).unwrap();
    let reader = open(&path).unwrap();
    assert_eq!((reader.format(), reader.header()), (Format::Dtr, None));
    let events: Vec<Event> = reader.collect::<Result<_, _>>().unwrap();
    let view = TraceOutput {
        tensor: 2,
        kind: TraceOutputKind::Alias { of: 1 },
    };
    assert_eq!(
        events,
        [
            Event::Constant {
                tensor: 0,
                bytes: 64,
                device: 0
            },
            Event::Retain { tensor: 0 },
            Event::Release { tensor: 0 },
            op("mm", &[0, 0], vec![fresh(1, 32), view], 500),
            Event::Mark {
                name: "BACKWARD".into()
            },
            // The new value is as large as the storage that b viewed; the name b moves to it.
            op("add_", &[2, 1], vec![fresh(3, 64)], 70),
            Event::Release { tensor: 2 },
            Event::Release { tensor: 1 },
            Event::Retain { tensor: 3 },
            // The output condition: v, then a and b, which are one tensor.
            Event::Pin { tensor: 0 },
            Event::Pin { tensor: 3 },
        ]
    );
}

#[test]
fn instructions_are_read_back() {
    let directory = tempfile::tempdir().unwrap();
    let (first, second) = (
        directory.path().join("a.log"),
        directory.path().join("b.log.zst"),
    );
    std::fs::write(&first, LOG).unwrap();
    let read = |path| {
        LogReader::open(path, Limits::default())
            .unwrap()
            .collect::<Result<Vec<Instruction>, _>>()
            .unwrap()
    };
    let mut writer = LogWriter::create(&second).unwrap();
    for instruction in read(&first) {
        writer.write(&instruction).unwrap();
    }
    writer.finish().unwrap();
    assert_eq!(read(&first), read(&second));
}

#[test]
fn the_papers_spelling_of_copy_from_is_read() {
    let line = r#"{"INSTRUCTION":"COPYFROM","DST":"a","SRC":"b"}"#;
    let instruction: Instruction = serde_json::from_str(line).unwrap();
    assert_eq!(
        instruction,
        Instruction::CopyFrom {
            target: "a".into(),
            source: "b".into()
        }
    );
}

#[test]
fn in_place_becomes_mutate_of_a_copy() {
    let write = TraceOutput {
        tensor: 2,
        kind: TraceOutputKind::InPlace { of: 0 },
    };
    let events = [
        Event::Constant {
            tensor: 1,
            bytes: 64,
            device: 0,
        },
        op("relu_", &[1, 1], vec![write], 9),
    ];
    let (instructions, lost) = to_log(&events);
    let lines: Vec<String> = instructions
        .iter()
        .map(|line| serde_json::to_string(line).unwrap())
        .collect();
    assert_eq!(
        lines[3..],
        [
            r#"{"INSTRUCTION":"COPY","DST":"x2","SRC":"x1"}"#,
            r#"{"INSTRUCTION":"MUTATE","NAME":"relu_","ARGS":["x2","x1"],"MUTATE":[0],"TIME":"9"}"#,
        ]
    );
    assert_eq!(
        lost,
        Lost {
            in_place: 1,
            ..Lost::default()
        }
    );
    assert_eq!(lost.to_string(), "1 in-place writes (now copies)");
}

#[test]
fn what_a_log_cannot_say_is_counted() {
    let outputs = vec![TraceOutput {
        tensor: 2,
        kind: TraceOutputKind::Fresh {
            bytes: 8,
            device: 1,
        },
    }];
    let random = Event::Op {
        name: "rand".into(),
        inputs: vec![],
        outputs,
        workspace: 5,
        workspace_device: 1,
        cost: 3,
        replay: false,
    };
    let events = [
        Event::Constant {
            tensor: 1,
            bytes: 64,
            device: 2,
        },
        random,
        Event::Ensure { tensors: vec![1] },
        Event::Pin { tensor: 2 },
    ];
    let (_, lost) = to_log(&events);
    assert_eq!(
        lost,
        Lost {
            workspaces: 1,
            devices: 2,
            in_place: 0,
            unreplayable: 1,
            ensures: 1,
            pins: 1,
            plans: 0
        }
    );
}

fn to_log(events: &[Event]) -> (Vec<Instruction>, Lost) {
    let mut converter = ToDtr::default();
    let mut instructions = Vec::new();
    converter.start(&mut instructions);
    for event in events {
        converter.push(event, &mut instructions).unwrap();
    }
    (instructions, converter.lost())
}

fn to_trace(instructions: &[Instruction]) -> Vec<Event> {
    let mut converter = FromDtr::default();
    let mut events = VecDeque::new();
    for instruction in instructions {
        converter.push(instruction, &mut events).unwrap();
    }
    converter.finish(&mut events).unwrap();
    events.into()
}

/// Tensors pinned at the end, and all before.
fn without_pins(events: &[Event]) -> (Vec<&Event>, HashSet<u64>) {
    let pinned = |event: &Event| match event {
        Event::Pin { tensor } => Some(*tensor),
        _ => None,
    };
    (
        events
            .iter()
            .filter(|event| pinned(event).is_none())
            .collect(),
        events.iter().filter_map(pinned).collect(),
    )
}

proptest! {
    #[test]
    fn any_valid_trace_becomes_a_log_that_becomes_a_valid_trace(events in valid_traces()) {
        let (log, _) = to_log(&events);
        let trace = to_trace(&log);
        let mut validator = Validator::new(1000);
        for event in &trace {
            prop_assert_eq!(validator.check(event), Ok(()));
        }
        // What a log can say is said again in the same words; only the order of the output condition may change.
        let (again_log, _) = to_log(&trace);
        let again = to_trace(&again_log);
        prop_assert_eq!(without_pins(&trace), without_pins(&again));
    }

    #[test]
    fn references_and_sizes_come_through_a_log(events in valid_traces()) {
        let (log, _) = to_log(&events);
        let count = |events: &[Event]| {
            let retained = events.iter().filter(|event| matches!(event, Event::Retain { .. })).count();
            let released = events.iter().filter(|event| matches!(event, Event::Release { .. })).count();
            let defined: usize = events.iter().map(|event| match event {
                Event::Constant { .. } => 1,
                Event::Op { outputs, .. } => outputs.len(),
                _ => 0,
            }).sum();
            defined + retained - released
        };
        prop_assert_eq!(count(&to_trace(&log)), count(&events));
    }
}
