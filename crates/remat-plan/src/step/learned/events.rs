//! A recorded step as events.

use crate::step::plan::step_plan::{Action, StepPlan};
use remat_core::{Bytes, DeviceId, Lies, Origin, Output, Recorded, Replay, Told, ToldOutput};
use remat_trace::{Event, Rerun, TraceOutput, TraceOutputKind};
use std::collections::HashSet;

/// The name of ops that made what was there.
pub(super) const THERE: &str = "there";

/// A step's events, and what its ops and storages in plans are in the recording.
pub(super) struct Translated {
    pub(super) events: Vec<Event>,
    /// Of each op in plans its place among the ops of the step, unless the storage was there.
    pub(super) ops: Vec<Option<u32>>,
    /// Of each storage in plans the op that makes it and the output, unless the storage was there.
    pub(super) storages: Vec<Option<(u32, u32)>>,
    /// The storages that were there when the step began, in order.
    pub(super) there: Vec<There>,
    /// The event of each op of the step.
    starts: Vec<u32>,
}

/// A storage that was there when the step began.
#[derive(Clone, Copy)]
pub(super) struct There {
    /// Its op in plans.
    pub(super) number: u32,
    pub(super) origin: Origin,
    /// Where it lay in an arena; `None` for what was evicted.
    pub(super) address: Option<u64>,
    /// Whether it cannot be moved.
    pub(super) fixed: bool,
}

/// The bytes that are counted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Counted {
    All,
    /// Of those that were there, only those in the arena.
    InArena,
}

/// Translates a recording. The device that is planned becomes device 0.
pub(super) fn translate(recorded: &Recorded, counted: Counted) -> Translated {
    let mut translated = Translated {
        events: Vec::with_capacity(recorded.events.len()),
        ops: Vec::new(),
        storages: Vec::new(),
        there: Vec::new(),
        starts: Vec::new(),
    };
    let released = recorded.events.iter().filter_map(|told| match told {
        Told::Release(tensor) => Some(*tensor),
        _ => None,
    });
    let released: HashSet<u64> = released.collect();
    let mut place = 0;
    for told in &recorded.events {
        translated.push(recorded.device, told, counted, &released, &mut place);
    }
    translated
}

impl Translated {
    /// Replays by the numbers that plans use.
    pub(super) fn reruns(&self, replays: &[(u32, u32)]) -> Vec<Rerun> {
        let numbers = (0..).zip(&self.ops);
        let numbers: Vec<u32> = numbers
            .filter_map(|(number, place)| place.map(|_| number))
            .collect();
        let reruns = replays.iter().filter_map(|&(op, before)| {
            let event = self.starts.get(before as usize).copied();
            Some(Rerun {
                op: *numbers.get(op as usize)?,
                event: event.unwrap_or(self.events.len() as u32),
            })
        });
        reruns.collect()
    }

    /// The runs of a plan that are not first ones.
    pub(super) fn reruns_of(&self, plan: &StepPlan) -> Vec<Rerun> {
        let mut ran = vec![false; self.ops.len()];
        let mut starts = self.starts.iter();
        let runs = plan.steps.iter().filter_map(|action| match *action {
            Action::Run(op) | Action::RunInPlace(op) => Some(op),
            Action::Free(_) => None,
        });
        let mut reruns = Vec::new();
        for op in runs {
            let again = std::mem::replace(&mut ran[op as usize], true);
            if again {
                let event = starts.as_slice().first().copied();
                reruns.push(Rerun {
                    op,
                    event: event.unwrap_or(self.events.len() as u32),
                });
            } else if self.ops[op as usize].is_some() {
                starts.next();
            }
        }
        reruns
    }

    fn push(
        &mut self,
        planned: DeviceId,
        told: &Told,
        counted: Counted,
        released: &HashSet<u64>,
        place: &mut u32,
    ) {
        let event = match told {
            &Told::There {
                tensor,
                bytes,
                device,
                references,
                pinned,
                origin,
                lies,
                fixed,
            } => {
                if let Some(origin) = origin {
                    self.there.push(There {
                        number: self.ops.len() as u32,
                        origin,
                        address: match lies {
                            Lies::At(address) => Some(address),
                            Lies::Elsewhere | Lies::Nowhere => None,
                        },
                        fixed,
                    });
                }
                let elsewhere =
                    counted == Counted::InArena && origin.is_some() && lies == Lies::Elsewhere;
                let bytes = if elsewhere { Bytes(0) } else { bytes };
                self.ops.push(None);
                self.storages.push(None);
                let device = number(planned, device);
                // A constant stays in plans, which one that the program lets go of does not.
                let constant = pinned && !released.contains(&tensor);
                self.events.push(if constant {
                    let Bytes(bytes) = bytes;
                    Event::Constant {
                        tensor,
                        bytes,
                        device,
                    }
                } else {
                    there(tensor, bytes, device)
                });
                if pinned {
                    self.events.push(Event::Pin { tensor });
                }
                for _ in 1..references {
                    self.events.push(Event::Retain { tensor });
                }
                return;
            }
            Told::Op {
                inputs,
                outputs,
                workspace,
                workspace_device,
                cost,
                replay,
            } => {
                self.starts.push(self.events.len() as u32);
                self.ops.push(Some(*place));
                for (output, made) in (0..).zip(outputs) {
                    if !matches!(made.output, Output::Alias { .. }) {
                        self.storages.push(Some((*place, output)));
                    }
                }
                *place += 1;
                Event::Op {
                    name: "op".into(),
                    inputs: inputs.clone(),
                    outputs: outputs.iter().map(|made| output(planned, made)).collect(),
                    workspace: workspace.0,
                    workspace_device: number(planned, *workspace_device),
                    cost: cost.0,
                    replay: *replay == Replay::Allowed,
                }
            }
            &Told::Retain(tensor) => Event::Retain { tensor },
            &Told::Release(tensor) => Event::Release { tensor },
            &Told::Pin(tensor) => Event::Pin { tensor },
            Told::Ensure(tensors) => Event::Ensure {
                tensors: tensors.clone(),
            },
            _ => return,
        };
        self.events.push(event);
    }
}

/// An op that cannot run again, and made what was there.
fn there(tensor: u64, Bytes(bytes): Bytes, device: u8) -> Event {
    Event::Op {
        name: THERE.into(),
        inputs: Vec::new(),
        outputs: vec![TraceOutput {
            tensor,
            kind: TraceOutputKind::Fresh { bytes, device },
        }],
        workspace: 0,
        workspace_device: device,
        cost: 0,
        replay: false,
    }
}

fn output(planned: DeviceId, made: &ToldOutput) -> TraceOutput {
    let kind = match made.output {
        Output::Fresh { bytes, device } => TraceOutputKind::Fresh {
            bytes: bytes.0,
            device: number(planned, device),
        },
        Output::Alias { of } => TraceOutputKind::Alias { of },
        Output::InPlace { of } => TraceOutputKind::InPlace { of },
    };
    TraceOutput {
        tensor: made.tensor,
        kind,
    }
}

/// The device that is planned is 0, and takes the number of the one that was.
fn number(planned: DeviceId, device: DeviceId) -> u8 {
    match device {
        device if device == planned => 0,
        DeviceId(0) => planned.0,
        DeviceId(other) => other,
    }
}
