//! Small recordings, drawn and by hand, and plans of them.

use proptest::prelude::*;
use remat_plan::step::{Action, Fault, PLAN_VERSION, StepPlan, Verified, verify};
use remat_trace::{Event, TraceOutput, TraceOutputKind};

pub(crate) fn constant(tensor: u64, bytes: u64) -> Event {
    Event::Constant {
        tensor,
        bytes,
        device: 0,
    }
}

pub(crate) fn fresh(bytes: u64) -> TraceOutputKind {
    TraceOutputKind::Fresh { bytes, device: 0 }
}

pub(crate) const VIEW: TraceOutputKind = TraceOutputKind::Alias { of: 0 };
pub(crate) const IN_PLACE: TraceOutputKind = TraceOutputKind::InPlace { of: 0 };

/// An op of this cost that can run again.
pub(crate) fn op(inputs: &[u64], outputs: &[(u64, TraceOutputKind)], cost: u64) -> Event {
    let output = |&(tensor, kind)| TraceOutput { tensor, kind };
    Event::Op {
        name: "op".into(),
        inputs: inputs.to_vec(),
        outputs: outputs.iter().map(output).collect(),
        workspace: 0,
        workspace_device: 0,
        cost,
        replay: true,
    }
}

pub(crate) fn release(tensor: u64) -> Event {
    Event::Release { tensor }
}

/// The numbers of ops and storages.
pub(crate) fn counts(events: &[Event]) -> (u64, u64) {
    let (mut ops, mut storages) = (0, 0);
    for event in events {
        match event {
            Event::Constant { .. } => (ops, storages) = (ops + 1, storages + 1),
            Event::Op { outputs, .. } => {
                let views =
                    |output: &&TraceOutput| matches!(output.kind, TraceOutputKind::Alias { .. });
                ops += 1;
                storages += (outputs.len() - outputs.iter().filter(views).count()) as u64;
            }
            _ => {}
        }
    }
    (ops, storages)
}

/// A plan of these steps that claims nothing right but the recording's numbers.
pub(crate) fn unclaimed(events: &[Event], steps: Vec<Action>) -> StepPlan {
    let (ops, storages) = counts(events);
    StepPlan {
        version: PLAN_VERSION,
        budget_bytes: u64::MAX,
        peak_bytes: 0,
        cost_ns: 0,
        recompute_ns: 0,
        bound_ns: 0,
        seed: 0,
        iterations: 0,
        ops,
        storages,
        steps,
        addresses: None,
    }
}

/// The plan of these steps with claims that are right, if the steps are valid.
pub(crate) fn claimed(events: &[Event], steps: Vec<Action>) -> Result<(StepPlan, Verified), Fault> {
    let mut plan = unclaimed(events, steps);
    loop {
        let (field, found) = match verify(events, &plan) {
            Err(Fault::Claim { field, found, .. }) => (field, found),
            other => return other.map(|verified| (plan, verified)),
        };
        let found = u64::try_from(found).expect("small numbers");
        let claim = match field {
            "peak_bytes" => &mut plan.peak_bytes,
            "cost_ns" => &mut plan.cost_ns,
            "recompute_ns" => &mut plan.recompute_ns,
            other => panic!("{other} is right"),
        };
        assert_ne!(*claim, found);
        *claim = found;
    }
}

/// A drawn event: its kind, the tensors it is about, its bytes and cost.
type Draw = (u8, [u32; 3], u64, u64);

/// Recordings in which nothing reads a value after an op wrote into it, of so many events at most.
pub(crate) fn recordings(most: usize) -> impl Strategy<Value = Vec<Event>> {
    let draw = (0u8..16, any::<[u32; 3]>(), 0u64..9, 0u64..20);
    prop::collection::vec(draw, 1..=most).prop_map(|draws| drawn(&draws))
}

/// Tensors that can be named, each with the number of its storage.
struct Alive(Vec<(u64, usize)>);

impl Alive {
    fn pick(&self, number: u32) -> Option<(u64, usize)> {
        let last = self.0.len().checked_sub(1)?;
        // Mostly recent ones.
        self.0
            .get(last - number as usize % self.0.len().min(6))
            .copied()
    }

    /// Lets go of all tensors of a storage.
    fn drop(&mut self, storage: usize, events: &mut Vec<Event>) {
        let gone = |&&(_, of): &&(u64, usize)| of == storage;
        events.extend(
            self.0
                .iter()
                .filter(gone)
                .map(|&(tensor, _)| release(tensor)),
        );
        self.0.retain(|&(_, of)| of != storage);
    }
}

fn drawn(draws: &[Draw]) -> Vec<Event> {
    let (mut events, mut alive) = (vec![constant(0, 5)], Alive(vec![(0, 0)]));
    let mut storages = 1;
    for (index, &(kind, picks, bytes, cost)) in draws.iter().enumerate() {
        let tensor = index as u64 + 1;
        let (Some(first), Some(second)) = (alive.pick(picks[0]), alive.pick(picks[1])) else {
            break;
        };
        match kind {
            0 => events.push(constant(tensor, bytes)),
            1 | 2 => events.push(op(&[first.0], &[(tensor, VIEW)], cost)),
            3 => {
                events.push(op(&[first.0, second.0], &[(tensor, IN_PLACE)], cost));
                alive.drop(first.1, &mut events);
            }
            4 => events.push(Event::Ensure {
                tensors: vec![first.0, second.0],
            }),
            5 if picks[2] % 4 == 0 => events.push(Event::Pin { tensor: first.0 }),
            5..=8 => {
                events.push(release(first.0));
                alive.0.retain(|&(alive, _)| alive != first.0);
            }
            _ => {
                let mut made = op(&[first.0, second.0], &[(tensor, fresh(bytes))], cost);
                if let Event::Op {
                    workspace, replay, ..
                } = &mut made
                {
                    (*workspace, *replay) = (u64::from(picks[2] % 7), picks[2] % 11 > 0);
                }
                events.push(made);
            }
        }
        match kind {
            1 | 2 => alive.0.push((tensor, first.1)),
            0 | 3 | 9.. => {
                alive.0.push((tensor, storages));
                storages += 1;
            }
            _ => {}
        }
    }
    events
}
