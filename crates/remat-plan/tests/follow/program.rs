//! A program that runs a recorded step again and again.

use remat_core::{
    Bytes, Config, Cost, DeviceId, Engine, Error, Finished, OpSpec, Output, Replay, TensorId,
};
use remat_trace::{Event, TraceOutputKind};
use std::collections::HashMap;

/// The time that a step took, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) first: u64,
    pub(crate) replayed: u64,
}

/// The tensors of the step under way.
#[derive(Default)]
pub(crate) struct Program {
    tensors: HashMap<u64, (TensorId, u32)>,
}

impl Program {
    /// Runs a step, and lets go of all that it leaves.
    ///
    /// # Errors
    /// The refusal that ended the step.
    pub(crate) fn step(&mut self, engine: &mut Engine, events: &[Event]) -> Result<Totals, Error> {
        let before = engine.counters();
        let told = events.iter().try_for_each(|event| self.tell(engine, event));
        let mut left: Vec<_> = self.tensors.drain().collect();
        left.sort_unstable_by_key(|(tensor, _)| *tensor);
        for (_, (tensor, references)) in left {
            for _ in 0..references {
                engine.release(tensor).expect("a reference");
            }
        }
        engine.collected();
        let after = engine.counters();
        told.map(|()| Totals {
            first: after.first_cost.0 - before.first_cost.0,
            replayed: after.replayed_cost.0 - before.replayed_cost.0,
        })
    }

    fn of(&self, tensor: u64) -> TensorId {
        self.tensors[&tensor].0
    }

    fn tell(&mut self, engine: &mut Engine, event: &Event) -> Result<(), Error> {
        match event {
            &Event::Constant {
                tensor,
                bytes,
                device,
            } => {
                let id = engine.constant(Bytes(bytes), DeviceId(device))?;
                self.tensors.insert(tensor, (id, 1));
            }
            Event::Op {
                inputs,
                outputs,
                workspace,
                workspace_device,
                cost,
                replay,
                ..
            } => {
                let inputs: Vec<_> = inputs.iter().map(|&input| self.of(input)).collect();
                let made = outputs.iter().map(|output| match output.kind {
                    TraceOutputKind::Fresh { bytes, device } => Output::Fresh {
                        bytes: Bytes(bytes),
                        device: DeviceId(device),
                    },
                    TraceOutputKind::Alias { of } => Output::Alias { of },
                    TraceOutputKind::InPlace { of } => Output::InPlace { of },
                });
                let spec = OpSpec {
                    inputs: &inputs,
                    outputs: &made.collect::<Vec<_>>(),
                    workspace: Bytes(*workspace),
                    workspace_device: DeviceId(*workspace_device),
                    replay: if *replay {
                        Replay::Allowed
                    } else {
                        Replay::Forbidden
                    },
                };
                let op = engine.begin(&spec)?;
                let report = Finished {
                    cost: Cost(*cost),
                    bytes: None,
                };
                engine.finish(op, &report).expect("an op that was begun");
                for (output, &id) in outputs.iter().zip(engine.outputs(op)) {
                    self.tensors.insert(output.tensor, (id, 1));
                }
            }
            Event::Retain { tensor } => {
                engine.retain(self.of(*tensor)).expect("a tensor");
                let held = self.tensors.get_mut(tensor);
                held.expect("a tensor").1 += 1;
            }
            Event::Release { tensor } => {
                engine.release(self.of(*tensor)).expect("a reference");
                let held = self.tensors.get_mut(tensor).expect("a tensor");
                held.1 -= 1;
                if held.1 == 0 {
                    self.tensors.remove(tensor);
                }
            }
            Event::Pin { tensor } => engine.pin(self.of(*tensor))?,
            Event::Ensure { tensors } => {
                let tensors: Vec<_> = tensors.iter().map(|&tensor| self.of(tensor)).collect();
                engine.ensure(&tensors)?;
            }
            Event::Mark { .. } => {}
        }
        engine.collected();
        Ok(())
    }
}

/// The peak of the step without a budget.
pub(crate) fn peak(events: &[Event]) -> u64 {
    let mut engine = Engine::new(Config::default());
    let step = Program::default().step(&mut engine, events);
    step.expect("no budget");
    engine.peak(DeviceId(0)).0
}
