//! Runs of small handmade steps, and of the recorded ones in `traces/`.

use remat_core::{Bytes, Config, Cost, Dealloc, DeviceId, Error, Policy};
use remat_sim::{Base, Budget, EngineSetting, Job, Outcome, Program, Setting, Status, sweep};
use remat_trace::{Event, Replayer, TraceOutput, TraceOutputKind};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

fn op(inputs: &[u64], tensor: u64, kind: TraceOutputKind) -> Event {
    Event::Op {
        name: "op".into(),
        inputs: inputs.to_vec(),
        outputs: vec![TraceOutput { tensor, kind }],
        workspace: 0,
        workspace_device: 0,
        cost: 10,
        replay: true,
    }
}

fn fresh(bytes: u64, device: u8) -> TraceOutputKind {
    TraceOutputKind::Fresh { bytes, device }
}

fn setting(budget: Budget) -> Setting {
    Setting {
        policy: Policy::default().into(),
        dealloc: Dealloc::Eager,
        budget,
        thrash_limit: 1.0,
        seed: 0,
        ..Setting::default()
    }
}

/// A constant, a chain of `layers` activations of 100 bytes, and a backward pass from last to first.
fn chain(layers: u64) -> Program {
    let mut events = vec![Event::Constant {
        tensor: 0,
        bytes: 100,
        device: 0,
    }];
    events.extend((1..=layers).map(|layer| op(&[layer - 1], layer, fresh(100, 0))));
    let gradient = |layer: u64| 1000 + layer;
    events.push(op(&[layers], gradient(layers), fresh(100, 0)));
    for layer in (1..=layers).rev() {
        let read = [layer - 1, gradient(layer)];
        events.push(op(&read, gradient(layer - 1), fresh(100, 0)));
        events.extend([gradient(layer), layer].map(|tensor| Event::Release { tensor }));
    }
    events.push(Event::Pin {
        tensor: gradient(0),
    });
    events.iter().collect()
}

fn traces() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces");
    let mut paths: Vec<_> = std::fs::read_dir(directory)
        .expect("traces/")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.sort();
    paths
}

#[test]
fn the_base_is_the_step_without_a_limit() {
    let base = chain(10).base().expect("a sound step");
    let expected = Base {
        // The constant, ten activations, and two gradients at the turn.
        memory: Bytes(1300),
        cost: Cost(210),
        constants: Bytes(100),
        bottleneck: Bytes(300),
    };
    assert_eq!(base, expected);
}

#[test]
fn a_smaller_budget_costs_recomputation_and_too_small_a_one_is_oom() {
    let program = chain(10);
    let base = program.base().expect("a sound step");
    let run = |bytes| {
        let setting = setting(Budget::Bytes(Bytes(bytes)));
        program.run(&base, &setting).expect("a sound step")
    };
    let whole = run(1300);
    assert_eq!((whole.status, whole.clock), (Status::Ok, 211));
    assert_eq!(whole.counters.evictions, 0);
    let half = run(700);
    assert_eq!(half.status, Status::Ok);
    assert!(half.counters.replays > 0 && half.peak <= Bytes(700));
    assert_eq!(half.clock, 211 + 10 * half.counters.replays);
    assert_eq!(run(250).status, Status::Oom);
}

#[test]
fn a_low_limit_is_thrashing_just_beyond_it() {
    let program = chain(10);
    let base = program.base().expect("a sound step");
    let limited = Setting {
        thrash_limit: 0.05,
        ..setting(Budget::Bytes(Bytes(600)))
    };
    let outcome = program.run(&base, &limited).expect("a sound step");
    assert_eq!(outcome.status, Status::Thrash);
    // 0.05 * 210 is 10: the second replay is one too many.
    assert_eq!(outcome.counters.replayed_cost, Cost(20));
}

#[test]
fn only_the_first_pool_is_limited() {
    let events = [
        Event::Constant {
            tensor: 0,
            bytes: 10,
            device: 0,
        },
        op(&[0], 1, fresh(1000, 1)),
        op(&[0], 2, fresh(20, 0)),
        Event::Ensure {
            tensors: vec![1, 2],
        },
    ];
    let program: Program = events.iter().collect();
    let base = program.base().expect("a sound step");
    assert_eq!(base.memory, Bytes(30));
    let outcome = program
        .run(&base, &setting(Budget::Ratio(1.0)))
        .expect("a sound step");
    assert_eq!((outcome.status, outcome.peak), (Status::Ok, Bytes(30)));
}

#[test]
fn an_event_that_names_an_unknown_tensor_is_told() {
    let events = [
        Event::Constant {
            tensor: 0,
            bytes: 10,
            device: 0,
        },
        Event::Mark { name: "x".into() },
        Event::Pin { tensor: 7 },
    ];
    let program: Program = events.iter().collect();
    let unsound = program.base().expect_err("an unsound step");
    assert_eq!(unsound.event, 1);
    assert!(matches!(unsound.error, Error::Protocol(_)), "{unsound}");
}

#[test]
fn recorded_traces_run_inside_their_budgets() {
    for path in traces() {
        let program = Program::open(&path).expect("a trace");
        let base = program.base().expect("a sound trace");
        for dealloc in [Dealloc::Eager, Dealloc::Banish, Dealloc::Ignore] {
            let ratios: &[f64] = match dealloc {
                Dealloc::Eager => &[1.0, 0.8],
                _ => &[1.0],
            };
            for &ratio in ratios {
                let setting = Setting {
                    dealloc,
                    ..setting(Budget::Ratio(ratio))
                };
                let outcome = program.run(&base, &setting).expect("a sound trace");
                assert!(outcome.peak <= outcome.budget, "{}", path.display());
                let free = ratio == 1.0 && dealloc == Dealloc::Banish;
                if free {
                    assert_eq!(outcome.clock, base.cost.0 + 1, "{}", path.display());
                }
            }
        }
    }
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let program = Program::open(&traces()[0]).expect("a trace");
    let base = program.base().expect("a sound trace");
    let policies = ["dtr-eq", "random", "lru", "msps"];
    let jobs: Vec<Job> = policies
        .iter()
        .flat_map(|policy| [0.4, 0.7, 0.9].map(|ratio| (policy, ratio)))
        .map(|(policy, ratio)| Job {
            program: &program,
            base: &base,
            setting: Setting {
                policy: policy.parse().expect("a policy"),
                ..setting(Budget::Ratio(ratio))
            },
        })
        .collect();
    let all = |threads| {
        let mut shown: Vec<(usize, String)> = Vec::new();
        let ended = sweep(&jobs, threads, |index, outcome| {
            let outcome = outcome.expect("a sound trace");
            let timeless = Outcome {
                wall: Default::default(),
                ..outcome
            };
            shown.push((index, format!("{timeless:?}")));
            ControlFlow::<()>::Continue(())
        });
        assert!(ended.is_continue());
        shown
    };
    let one = all(1);
    assert_eq!(one.len(), jobs.len());
    assert!(one.iter().map(|(index, _)| *index).eq(0..jobs.len()));
    assert_eq!(one, all(4));
}

#[test]
fn a_sweep_can_be_ended_early() {
    let program = chain(3);
    let base = program.base().expect("a sound step");
    let jobs = [Job {
        program: &program,
        base: &base,
        setting: setting(Budget::Ratio(1.0)),
    }; 50];
    let mut shown = 0;
    let ended = sweep(&jobs, 2, |index, _| {
        shown += 1;
        match index {
            3 => ControlFlow::Break("enough"),
            _ => ControlFlow::Continue(()),
        }
    });
    assert_eq!((ended, shown), (ControlFlow::Break("enough"), 4));
}

/// A recorded step told as a front end tells an engine that is set as in training.
fn trained(events: &[Event], policy: Policy, budget: Bytes) -> Replayer {
    let mut replayer = Replayer::new(Config {
        budgets: vec![Some(budget)],
        policy,
        ..Config::default()
    });
    for event in events {
        replayer.feed(event).expect("the budget is met");
    }
    replayer
}

#[test]
fn an_engine_set_as_in_training_decides_as_training_does() {
    let policy: Policy = "dtr-anc".parse().expect("a policy");
    let mut rescued = 0;
    for (name, ratio) in [("lstm", 0.6), ("unet", 0.3), ("resnet", 0.4), ("gan", 0.6)] {
        let path = traces()
            .into_iter()
            .find(|path| path.ends_with(format!("{name}.trace.zst")));
        let reader = remat_trace::open(path.expect("a trace")).expect("a readable trace");
        let events: Vec<Event> = reader
            .with_mutations_in_place()
            .collect::<Result<_, _>>()
            .expect("sound events");
        let program: Program = events.iter().collect();
        let base = program.base().expect("a sound step");
        let as_training = Setting {
            policy: policy.into(),
            engine: EngineSetting::Training,
            ..setting(Budget::Ratio(ratio))
        };
        let run = program.run(&base, &as_training).expect("a sound step");
        assert_eq!(run.status, Status::Ok, "{name}");
        let told = trained(&events, policy, run.budget);
        let (told, peak) = (told.engine().counters(), told.engine().peak(DeviceId(0)));
        assert_eq!(
            (run.counters.replayed_cost, run.peak),
            (told.replayed_cost, peak),
            "{name}"
        );
        let as_paper = Setting {
            engine: EngineSetting::Paper,
            ..as_training
        };
        let paper = program.run(&base, &as_paper).expect("a sound step");
        rescued += u32::from(paper.status != Status::Ok);
    }
    assert_eq!(
        rescued, 2,
        "the LSTM and the U-Net do not fit as the paper has it"
    );
}
