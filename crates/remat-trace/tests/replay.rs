//! The engine replays traces inside a budget: handmade ones, and every recorded one in `traces/`.

mod valid_traces;

use proptest::prelude::*;
use remat_core::{Bytes, Config, Counters, DeviceId, Engine, Error, Policy};
use remat_trace::{Event, Replayer, TraceOutput, TraceOutputKind, open};
use std::fs;
use std::path::{Path, PathBuf};
use valid_traces::valid_traces;

const DEVICE: DeviceId = DeviceId(0);

fn op(name: &str, inputs: &[u64], output: u64, kind: TraceOutputKind) -> Event {
    Event::Op {
        name: name.into(),
        inputs: inputs.to_vec(),
        outputs: vec![TraceOutput {
            tensor: output,
            kind,
        }],
        workspace: 0,
        workspace_device: 0,
        cost: 10,
        replay: true,
    }
}

/// A chain of `layers` activations of 100 bytes, and a backward pass that reads them from last to first.
fn chain(layers: u64) -> Vec<Event> {
    let activation = TraceOutputKind::Fresh {
        bytes: 100,
        device: 0,
    };
    let mut events = vec![Event::Constant {
        tensor: 0,
        bytes: 100,
        device: 0,
    }];
    events.extend((1..=layers).map(|layer| op("forward", &[layer - 1], layer, activation)));
    let gradient = |layer: u64| 1000 + layer;
    events.push(op("loss", &[layers], gradient(layers), activation));
    for layer in (1..=layers).rev() {
        events.push(op(
            "backward",
            &[layer - 1, gradient(layer)],
            gradient(layer - 1),
            activation,
        ));
        events.push(Event::Release {
            tensor: gradient(layer),
        });
        events.push(Event::Release { tensor: layer });
    }
    events.push(Event::Pin {
        tensor: gradient(0),
    });
    events
}

/// The state that a replay left.
struct Outcome {
    peak: Bytes,
    memory: Bytes,
    counters: Counters,
}

/// Replays under a budget for the first device; sees to it that memory is never above it.
fn replay(events: &[Event], budget: Option<Bytes>) -> Result<Outcome, Error> {
    replay_by(Policy::default(), events, budget)
}

fn replay_by(policy: Policy, events: &[Event], budget: Option<Bytes>) -> Result<Outcome, Error> {
    let mut replayer = Replayer::new(Config {
        budgets: vec![budget],
        policy,
        ..Config::default()
    });
    let within = |engine: &Engine| {
        if let Some(budget) = budget {
            assert!(
                engine.memory(DEVICE) <= budget,
                "{:?} is above {budget:?}",
                engine.memory(DEVICE)
            );
            assert!(
                engine.peak(DEVICE) <= budget,
                "the peak {:?} is above {budget:?}",
                engine.peak(DEVICE)
            );
        }
    };
    for event in events {
        replayer.feed_watched(event, &mut |engine| within(engine))?;
        within(replayer.engine());
    }
    let engine = replayer.engine();
    Ok(Outcome {
        peak: engine.peak(DEVICE),
        memory: engine.memory(DEVICE),
        counters: engine.counters(),
    })
}

#[test]
fn a_chain_fits_in_half_its_peak_by_recomputing() {
    let events = chain(16);
    let free = replay(&events, None).unwrap();
    // Constant, 16 activations, two gradients.
    assert_eq!(free.peak, Bytes(1900));
    assert_eq!(free.counters.replays, 0);
    // The constant and its gradient.
    assert_eq!(free.memory, Bytes(200));

    let tight = replay(&events, Some(Bytes(900))).unwrap();
    assert!(tight.peak <= Bytes(900));
    assert!(tight.counters.replays > 0);
    assert_eq!(tight.memory, free.memory);
    assert_eq!(tight.counters.first_cost, free.counters.first_cost);
}

#[test]
fn the_unconstrained_peak_is_budget_enough() {
    let events = chain(16);
    let peak = replay(&events, None).unwrap().peak;
    let same = replay(&events, Some(peak)).unwrap();
    assert_eq!((same.peak, same.counters.replays), (peak, 0));
}

#[test]
fn an_impossible_budget_is_refused() {
    let refusal = replay(&chain(16), Some(Bytes(250))).map(|outcome| outcome.peak);
    assert!(
        matches!(
            refusal,
            Err(Error::Budget {
                budget: Bytes(250),
                ..
            })
        ),
        "{refusal:?}"
    );
}

#[test]
fn views_copies_and_writes_in_place_are_replayed() {
    let fresh = TraceOutputKind::Fresh {
        bytes: 100,
        device: 0,
    };
    let events = [
        Event::Constant {
            tensor: 0,
            bytes: 100,
            device: 0,
        },
        op("mul", &[0, 0], 1, fresh),
        op("view", &[1], 2, TraceOutputKind::Alias { of: 0 }),
        Event::Retain { tensor: 2 },
        Event::Release { tensor: 1 },
        op("relu_", &[2], 3, TraceOutputKind::InPlace { of: 0 }),
        Event::Release { tensor: 2 },
        Event::Release { tensor: 2 },
        Event::Ensure { tensors: vec![3] },
        Event::Mark { name: "end".into() },
        Event::Pin { tensor: 3 },
    ];
    let outcome = replay(&events, Some(Bytes(200))).unwrap();
    assert_eq!((outcome.memory, outcome.counters.replays), (Bytes(200), 0));
}

/// Whether an op writes in place. Reading a value after it was written over, as random traces do and programs cannot,
/// takes a replay whatever the budget; and if it was a constant it is gone.
fn writes_in_place(events: &[Event]) -> bool {
    let in_place = |output: &TraceOutput| matches!(output.kind, TraceOutputKind::InPlace { .. });
    events
        .iter()
        .any(|event| matches!(event, Event::Op { outputs, .. } if outputs.iter().any(in_place)))
}

proptest! {
    #[test]
    fn any_valid_trace_replays_or_is_refused(events in valid_traces(), percent in 1u64..100) {
        let pure = !writes_in_place(&events);
        let free = match replay(&events, None) {
            Err(Error::Protocol(_)) if !pure => return Ok(()),
            free => free.map_err(|refusal| TestCaseError::fail(refusal.to_string()))?,
        };
        prop_assert!(free.counters.replays == 0 || !pure);
        match replay(&events, Some(Bytes(free.peak.0 * percent / 100))) {
            Ok(outcome) => prop_assert_eq!(outcome.counters.first_cost, free.counters.first_cost),
            Err(refusal) => prop_assert!(matches!(refusal, Error::Budget { .. }), "{}", refusal),
        }
    }
}

#[test]
fn every_recorded_trace_replays_inside_its_budgets() {
    let front_end: Policy = "dtr-anc".parse().unwrap();
    for path in recorded_traces() {
        let events: Vec<Event> = open(&path).unwrap().collect::<Result<_, _>>().unwrap();
        let peak = replay(&events, None).unwrap().peak;
        for percent in [100, 75, 60] {
            let budget = Bytes(peak.0 / 100 * percent + peak.0 % 100 * percent / 100);
            match replay_by(front_end, &events, Some(budget)) {
                Ok(outcome) if percent == 100 => {
                    assert_eq!(outcome.counters.replays, 0, "{}", path.display())
                }
                Ok(_) => {}
                Err(Error::Budget { smallest, .. }) if percent < 100 => {
                    assert!(smallest > budget, "{}", path.display())
                }
                Err(refusal) => panic!("{} at {percent}%: {refusal}", path.display()),
            }
        }
    }
}

fn recorded_traces() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces");
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "zst"))
        .collect();
    paths.sort();
    paths
}
