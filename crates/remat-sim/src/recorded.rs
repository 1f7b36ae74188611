//! A recorded step in flat vectors: parsed once, replayed without a copy.

use crate::op_kind;
use crate::role::Role;
use remat_core::{Bytes, Cost, DeviceId, Expected, Kind, OpSpec, Output, Replay, TensorId};
use remat_trace::{Event, Format, Planning, TraceOutput, TraceOutputKind};
use std::collections::HashMap;

/// A recorded step.
///
/// Tensors are numbered in the order in which they are made. An engine that keeps lineage for ever
/// ([`Lineage::Keep`](remat_core::Lineage)) numbers them the same way, so the numbers here are its ids.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorded {
    pub(crate) instructions: Vec<Instruction>,
    ops: Vec<Op>,
    /// Inputs of all ops, one op after the other; and tensors read outside ops.
    inputs: Vec<TensorId>,
    /// Outputs of all ops, one op after the other: where mutations write in place, and where they write into copies.
    outputs: [Vec<Output>; 2],
    /// The place where the recording's own mutations wrote.
    recorded: Mutations,
    plans: Vec<Planning>,
    tensors: u32,
    constant_bytes: u64,
    bottleneck: u64,
}

/// One event of a step, tensors and ops by number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Instruction {
    Constant {
        bytes: Bytes,
        device: DeviceId,
    },
    Op(u32),
    Retain(TensorId),
    Release(TensorId),
    Pin(TensorId),
    Ensure {
        from: u32,
        to: u32,
    },
    /// The engine is told about planned steps, where it is to follow the plans of the recorded run.
    Plan(u32),
    /// As [`Ensure`](Instruction::Ensure), asked for by a plan instead of the program.
    Bring(TensorId),
}

#[derive(Clone, Copy, Debug)]
struct Op {
    /// Ranges in the lists of inputs and outputs.
    inputs: (u32, u32),
    outputs: (u32, u32),
    workspace: Bytes,
    workspace_device: DeviceId,
    cost: Cost,
    replay: Replay,
    kind: Kind,
    role: Role,
}

/// Where an op writes that changes a tensor (Coop section 3.5, figure 3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mutations {
    /// Where the recording has it: in place in Remat's traces, into copies in DTR logs.
    #[default]
    Recorded,
    /// Into the tensor's own block; the old value counts as evicted.
    InPlace,
    /// Into a copy.
    Copied,
}

/// Whether the plans that a recorded run adopted are followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Adopted {
    /// The policy decides alone.
    #[default]
    Ignored,
    /// Plans are followed wherever steps come as they expect, and they fit. The engine is set as in training.
    Followed,
}

impl Recorded {
    /// Takes in events of a step recorded in a format, until one is an error.
    pub(crate) fn read<E>(
        format: Format,
        events: impl IntoIterator<Item = Result<Event, E>>,
    ) -> Result<Recorded, E> {
        let mut writer = Writer::default();
        writer.step.recorded = match format {
            Format::Remat => Mutations::InPlace,
            Format::Dtr => Mutations::Copied,
        };
        for event in events {
            writer.push(&event?);
        }
        Ok(writer.step)
    }

    /// Takes in events that a reader has checked. A tensor that no earlier event made gets an id that the engine
    /// refuses.
    pub(crate) fn of<'a>(events: impl IntoIterator<Item = &'a Event>) -> Recorded {
        let mut writer = Writer::default();
        events.into_iter().for_each(|event| writer.push(event));
        writer.step
    }

    pub(crate) fn constant_bytes(&self) -> Bytes {
        Bytes(self.constant_bytes)
    }

    pub(crate) fn bottleneck(&self) -> Bytes {
        Bytes(self.bottleneck)
    }

    /// An op in the engine's terms, and its recorded cost.
    pub(crate) fn op(&self, op: u32, mutations: Mutations) -> (OpSpec<'_>, Expected) {
        let (inputs, outputs) = (self.inputs_of(op), self.outputs_of(op, mutations));
        let op = &self.ops[op as usize];
        let spec = OpSpec {
            inputs,
            outputs,
            workspace: op.workspace,
            workspace_device: op.workspace_device,
            replay: op.replay,
        };
        let expected = Expected {
            cost: op.cost,
            kind: op.kind,
        };
        (spec, expected)
    }

    pub(crate) fn inputs_of(&self, op: u32) -> &[TensorId] {
        let (from, to) = self.ops[op as usize].inputs;
        self.tensors(from, to)
    }

    pub(crate) fn outputs_of(&self, op: u32, mutations: Mutations) -> &[Output] {
        let mutations = match mutations {
            Mutations::Recorded => self.recorded,
            chosen => chosen,
        };
        let outputs = &self.outputs[usize::from(mutations == Mutations::Copied)];
        let (from, to) = self.ops[op as usize].outputs;
        &outputs[from as usize..to as usize]
    }

    pub(crate) fn can_be_replayed(&self, op: u32) -> bool {
        self.ops[op as usize].replay == Replay::Allowed
    }

    pub(crate) fn role_of(&self, op: u32) -> Role {
        self.ops[op as usize].role
    }

    /// A thing that the recorded run's engine was told about planned steps.
    pub(crate) fn plan(&self, index: u32) -> &Planning {
        &self.plans[index as usize]
    }

    /// Whether the recorded run adopted a plan.
    pub(crate) fn has_plans(&self) -> bool {
        let follows = |told: &Planning| matches!(told, Planning::Follow(_));
        self.plans.iter().any(follows)
    }

    /// Tensors read together.
    pub(crate) fn tensors(&self, from: u32, to: u32) -> &[TensorId] {
        &self.inputs[from as usize..to as usize]
    }
}

/// A tensor that was made.
#[derive(Clone, Copy)]
struct Made {
    number: TensorId,
    /// 0 for a view.
    bytes: u64,
    /// Of its storage.
    storage_bytes: u64,
    device: u8,
}

/// A step being taken in.
#[derive(Default)]
struct Writer {
    step: Recorded,
    /// Tensors by the trace's ids.
    made: HashMap<u64, Made>,
    /// Scratch: an op's inputs with their bytes.
    read: Vec<(TensorId, u64)>,
}

impl Writer {
    fn push(&mut self, event: &Event) {
        let instruction = match event {
            Event::Constant {
                tensor,
                bytes,
                device,
            } => {
                self.define(*tensor, *bytes, *bytes, *device);
                let constants = &mut self.step.constant_bytes;
                *constants = constants.saturating_add(*bytes);
                Instruction::Constant {
                    bytes: Bytes(*bytes),
                    device: DeviceId(*device),
                }
            }
            Event::Op { .. } => match self.op(event) {
                Some(number) => Instruction::Op(number),
                None => return,
            },
            Event::Retain { tensor } => Instruction::Retain(self.number(*tensor)),
            Event::Release { tensor } => Instruction::Release(self.number(*tensor)),
            Event::Pin { tensor } => Instruction::Pin(self.number(*tensor)),
            Event::Ensure { tensors } => {
                let (from, to) = self.read(tensors);
                Instruction::Ensure { from, to }
            }
            Event::Plan(told) => {
                self.step.plans.push(told.clone());
                Instruction::Plan(self.step.plans.len() as u32 - 1)
            }
            Event::Mark { .. } => return,
        };
        self.step.instructions.push(instruction);
    }

    fn op(&mut self, event: &Event) -> Option<u32> {
        let Event::Op {
            name,
            inputs: read,
            outputs,
            workspace,
            workspace_device,
            cost,
            replay,
            ..
        } = event
        else {
            return None;
        };
        let mut needed = self.bytes_read(read).saturating_add(*workspace);
        let inputs = self.read(read);
        let first = self.step.outputs[0].len() as u32;
        for output in outputs {
            needed = needed.saturating_add(self.output(output, read));
        }
        self.step.bottleneck = self.step.bottleneck.max(needed);
        self.step.ops.push(Op {
            inputs,
            outputs: (first, self.step.outputs[0].len() as u32),
            workspace: Bytes(*workspace),
            workspace_device: DeviceId(*workspace_device),
            cost: Cost(*cost),
            replay: if *replay {
                Replay::Allowed
            } else {
                Replay::Forbidden
            },
            kind: op_kind::of(name),
            role: Role::of(name),
        });
        Some(self.step.ops.len() as u32 - 1)
    }

    /// Takes in an output of an op that reads the tensors `read`; returns the bytes that it adds to memory.
    fn output(&mut self, output: &TraceOutput, read: &[u64]) -> u64 {
        let of = match output.kind {
            TraceOutputKind::Fresh { .. } => None,
            TraceOutputKind::Alias { of } | TraceOutputKind::InPlace { of } => read.get(of),
        };
        let of = of.and_then(|tensor| self.made.get(tensor)).copied();
        let viewed = of.map_or((0, 0), |made| (made.storage_bytes, made.device));
        let (storage_bytes, device) = match output.kind {
            TraceOutputKind::Fresh { bytes, device } => (bytes, device),
            _ => viewed,
        };
        let copied = self.step.recorded == Mutations::Copied;
        let bytes = match output.kind {
            TraceOutputKind::InPlace { .. } if !copied => 0,
            TraceOutputKind::Alias { .. } => 0,
            _ => storage_bytes,
        };
        self.define(output.tensor, bytes, storage_bytes, device);
        self.step.outputs[0].push(output.kind.into());
        self.step.outputs[1].push(match output.kind {
            TraceOutputKind::InPlace { .. } => Output::Fresh {
                bytes: Bytes(storage_bytes),
                device: DeviceId(device),
            },
            kind => kind.into(),
        });
        bytes
    }

    /// Bytes of an op's inputs, each tensor counted once.
    fn bytes_read(&mut self, tensors: &[u64]) -> u64 {
        let made = tensors.iter().filter_map(|tensor| self.made.get(tensor));
        self.read.clear();
        self.read.extend(made.map(|made| (made.number, made.bytes)));
        self.read.sort_unstable();
        self.read.dedup();
        let bytes = self.read.iter().map(|&(_, bytes)| bytes);
        bytes.fold(0, u64::saturating_add)
    }

    fn define(&mut self, tensor: u64, bytes: u64, storage_bytes: u64, device: u8) {
        let number = TensorId(self.step.tensors);
        self.step.tensors += 1;
        let made = Made {
            number,
            bytes,
            storage_bytes,
            device,
        };
        self.made.insert(tensor, made);
    }

    fn read(&mut self, tensors: &[u64]) -> (u32, u32) {
        let from = self.step.inputs.len() as u32;
        for &tensor in tensors {
            let number = self.number(tensor);
            self.step.inputs.push(number);
        }
        (from, self.step.inputs.len() as u32)
    }

    fn number(&self, tensor: u64) -> TensorId {
        let made = self.made.get(&tensor);
        made.map_or(TensorId(u32::MAX), |made| made.number)
    }
}
