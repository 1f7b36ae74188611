//! Runs of the engine, written down as plans: they are valid, and take the time and the peak that the engine tells.

use remat_core::{
    Bytes, Config, DeviceId, Engine, Lineage, Mutation, ReplayOrder, Step, ThrashLimit,
};
use remat_plan::step::{Action, PLAN_VERSION, StepPlan, verify};
use remat_sim::Program;
use remat_trace::{Event, Replayer, TraceOutput, TraceOutputKind};
use std::path::Path;

/// The plan so far.
#[derive(Default)]
struct Writer {
    /// For each op of the engine its number in plans, and whether it writes in place.
    ops: Vec<(u32, bool)>,
    /// Constants and ops so far.
    next: u32,
    storages: u64,
    steps: Vec<Action>,
}

impl Writer {
    fn performed(&mut self, engine: &Engine) {
        for step in engine.steps() {
            self.steps.push(match *step {
                Step::Evict(storage) => Action::Free(storage.index() as u32),
                Step::Recompute { op, mutation } => match self.ops[op.index()] {
                    (number, true) if mutation == Mutation::Consume => Action::RunInPlace(number),
                    (number, _) => Action::Run(number),
                },
                Step::Move { .. } => panic!("there is no arena"),
            });
        }
    }

    fn tell(&mut self, replayer: &mut Replayer, event: &Event) {
        let mut first = None;
        if let Event::Constant { .. } = event {
            first = Some(self.next);
            self.storages += 1;
        }
        if let Event::Op { outputs, .. } = event {
            first = Some(self.next);
            let views =
                |output: &&TraceOutput| matches!(output.kind, TraceOutputKind::Alias { .. });
            let written =
                |output: &TraceOutput| matches!(output.kind, TraceOutputKind::InPlace { .. });
            self.storages += (outputs.len() - outputs.iter().filter(views).count()) as u64;
            self.ops.push((self.next, outputs.iter().any(written)));
        }
        self.next += u32::from(first.is_some());
        // Of an op the engine is shown twice: before it runs, and after.
        let fed = replayer.feed_watched(event, &mut |engine| {
            self.performed(engine);
            self.steps.extend(first.take().map(Action::Run));
        });
        fed.expect("a budget that can be met");
    }
}

/// Runs a trace in a part of its memory by a policy, and verifies what happened: the runs again, and those of them that
/// took old blocks.
fn verified(name: &str, policy: &str, ratio: f64) -> (u64, usize) {
    let path = format!("../../traces/{name}.trace.zst");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let read: Result<Vec<Event>, _> = remat_trace::open(path).expect("a trace").collect();
    let events = read.expect("a whole trace");
    let program: Program = events.iter().collect();
    let base = program.base().expect("a sound trace");
    let budget = Bytes((base.memory.0 as f64 * ratio) as u64);
    let mut replayer = Replayer::new(Config {
        budgets: vec![Some(budget)],
        policy: policy.parse().expect("a policy"),
        lineage: Lineage::Keep,
        order: ReplayOrder::Dtr,
        thrash: ThrashLimit::Total(base.cost),
        ..Config::default()
    });
    let mut writer = Writer::default();
    for event in &events {
        writer.tell(&mut replayer, event);
    }
    let engine = replayer.engine();
    let plan = StepPlan {
        version: PLAN_VERSION,
        budget_bytes: budget.0,
        peak_bytes: engine.peak(DeviceId(0)).0,
        cost_ns: engine.counters().first_cost.0,
        recompute_ns: engine.counters().replayed_cost.0,
        bound_ns: 0,
        seed: 0,
        iterations: 0,
        ops: u64::from(writer.next),
        storages: writer.storages,
        steps: writer.steps,
        addresses: None,
    };
    let found =
        verify(&events, &plan).unwrap_or_else(|fault| panic!("{name} {policy} {ratio}: {fault}"));
    assert_eq!(
        found.reruns,
        engine.counters().replays,
        "{name} {policy} {ratio}"
    );
    let taken = |step: &&Action| matches!(step, Action::RunInPlace(_));
    (found.reruns, plan.steps.iter().filter(taken).count())
}

#[test]
fn what_the_engine_does_is_a_valid_plan_of_its_own_time_and_peak() {
    for name in ["gan", "gpt", "lstm", "resnet", "unet"] {
        for policy in ["dtr", "dtr-anc"] {
            let (reruns, _) = verified(name, policy, 0.8);
            assert!(reruns > 0, "{name} {policy}");
        }
    }
    let (reruns, in_place) = verified("gpt", "dtr-anc", 0.5);
    assert!(reruns > 0 && in_place > 0);
}
