//! A recorded step, ready to be replayed many times.

use remat_core::{Bytes, Cost, OpSpec, Output, PoolId, Replay, TensorId};
use remat_trace::{Event, TraceError, TraceOutputKind};
use std::collections::HashMap;
use std::path::Path;

/// A recorded step in flat vectors: parsed once, replayed without a copy.
///
/// Tensors are numbered in the order in which they are made. An engine that keeps lineage for ever
/// ([`Lineage::Keep`](remat_core::Lineage)) numbers them the same way, so the numbers here are its ids.
#[derive(Clone, Debug, Default)]
pub struct Program {
    pub(crate) instructions: Vec<Instruction>,
    ops: Vec<Op>,
    /// What the ops read, one after the other; and what is read outside ops.
    inputs: Vec<TensorId>,
    /// What the ops make, one after the other.
    outputs: Vec<Output>,
    tensors: u32,
    constant_bytes: u64,
    bottleneck: u64,
}

/// What happened, in order.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Instruction {
    Constant { bytes: Bytes, pool: PoolId },
    Op(u32),
    Retain(TensorId),
    Release(TensorId),
    Pin(TensorId),
    Ensure { from: u32, to: u32 },
}

#[derive(Clone, Copy, Debug)]
struct Op {
    /// Where its inputs, and its outputs, begin and end.
    inputs: (u32, u32),
    outputs: (u32, u32),
    workspace: Bytes,
    workspace_pool: PoolId,
    cost: Cost,
    replay: Replay,
}

impl Program {
    /// Reads a trace or log, plain or packed (gzip, zstd); `-` is standard input.
    ///
    /// # Errors
    /// What [`remat_trace::open`] and the reader find wrong, with file and line.
    pub fn open(path: impl AsRef<Path>) -> Result<Program, TraceError> {
        Program::read(remat_trace::open(path)?)
    }

    /// Takes events in from a reader.
    ///
    /// # Errors
    /// The first error that the reader gives.
    pub fn read<E>(events: impl IntoIterator<Item = Result<Event, E>>) -> Result<Program, E> {
        let mut writer = Writer::default();
        for event in events {
            writer.push(&event?);
        }
        Ok(writer.program)
    }

    /// Events, remarks left out.
    pub fn len(&self) -> usize {
        self.instructions.len()
    }

    /// Whether nothing happens.
    pub fn is_empty(&self) -> bool {
        self.instructions.is_empty()
    }

    /// Bytes of all constants together.
    pub fn constant_bytes(&self) -> Bytes {
        Bytes(self.constant_bytes)
    }

    /// The most bytes that a single op reads, makes and works in. As in the authors' simulator a view has no bytes, also where
    /// an op reads it, so that the smallest budget that can do may lie a little above.
    pub fn bottleneck(&self) -> Bytes {
        Bytes(self.bottleneck)
    }

    /// The op by its number, as the engine is told it, and its cost.
    pub(crate) fn op(&self, op: u32) -> (OpSpec<'_>, Cost) {
        let op = &self.ops[op as usize];
        let spec = OpSpec {
            inputs: self.tensors(op.inputs.0, op.inputs.1),
            outputs: &self.outputs[op.outputs.0 as usize..op.outputs.1 as usize],
            workspace: op.workspace,
            workspace_pool: op.workspace_pool,
            replay: op.replay,
        };
        (spec, op.cost)
    }

    /// Tensors read together.
    pub(crate) fn tensors(&self, from: u32, to: u32) -> &[TensorId] {
        &self.inputs[from as usize..to as usize]
    }
}

/// Takes in events that a reader has checked. A tensor that no event before made gets an id that the engine refuses.
impl<'a> FromIterator<&'a Event> for Program {
    fn from_iter<I: IntoIterator<Item = &'a Event>>(events: I) -> Program {
        let mut writer = Writer::default();
        events.into_iter().for_each(|event| writer.push(event));
        writer.program
    }
}

/// A tensor that was made.
#[derive(Clone, Copy)]
struct Made {
    number: TensorId,
    /// 0 for a view.
    bytes: u64,
}

/// A program being taken in.
#[derive(Default)]
struct Writer {
    program: Program,
    /// What is known of each tensor by the trace's id.
    made: HashMap<u64, Made>,
    /// Scratch: what an op reads, and bytes.
    read: Vec<(TensorId, u64)>,
}

impl Writer {
    fn push(&mut self, event: &Event) {
        let instruction = match event {
            Event::Constant {
                tensor,
                bytes,
                pool,
            } => {
                self.define(*tensor, *bytes);
                let constants = &mut self.program.constant_bytes;
                *constants = constants.saturating_add(*bytes);
                Instruction::Constant {
                    bytes: Bytes(*bytes),
                    pool: PoolId(*pool),
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
            Event::Mark { .. } => return,
        };
        self.program.instructions.push(instruction);
    }

    fn op(&mut self, event: &Event) -> Option<u32> {
        let Event::Op {
            inputs,
            outputs,
            workspace,
            workspace_pool,
            cost,
            replay,
            ..
        } = event
        else {
            return None;
        };
        let mut together = self.bytes_read(inputs).saturating_add(*workspace);
        let inputs = self.read(inputs);
        let first = self.program.outputs.len() as u32;
        for output in outputs {
            let bytes = match output.kind {
                TraceOutputKind::Fresh { bytes, .. } => bytes,
                TraceOutputKind::Alias { .. } | TraceOutputKind::InPlace { .. } => 0,
            };
            together = together.saturating_add(bytes);
            self.define(output.tensor, bytes);
            self.program.outputs.push(output.kind.into());
        }
        self.program.bottleneck = self.program.bottleneck.max(together);
        self.program.ops.push(Op {
            inputs,
            outputs: (first, self.program.outputs.len() as u32),
            workspace: Bytes(*workspace),
            workspace_pool: PoolId(*workspace_pool),
            cost: Cost(*cost),
            replay: if *replay {
                Replay::Allowed
            } else {
                Replay::Forbidden
            },
        });
        Some(self.program.ops.len() as u32 - 1)
    }

    /// Bytes of the tensors that an op reads, each once.
    fn bytes_read(&mut self, tensors: &[u64]) -> u64 {
        let made = tensors.iter().filter_map(|tensor| self.made.get(tensor));
        self.read.clear();
        self.read.extend(made.map(|made| (made.number, made.bytes)));
        self.read.sort_unstable();
        self.read.dedup();
        let bytes = self.read.iter().map(|&(_, bytes)| bytes);
        bytes.fold(0, u64::saturating_add)
    }

    fn define(&mut self, tensor: u64, bytes: u64) {
        let number = TensorId(self.program.tensors);
        self.program.tensors += 1;
        self.made.insert(tensor, Made { number, bytes });
    }

    fn read(&mut self, tensors: &[u64]) -> (u32, u32) {
        let from = self.program.inputs.len() as u32;
        for &tensor in tensors {
            let number = self.number(tensor);
            self.program.inputs.push(number);
        }
        (from, self.program.inputs.len() as u32)
    }

    fn number(&self, tensor: u64) -> TensorId {
        let made = self.made.get(&tensor);
        made.map_or(TensorId(u32::MAX), |made| made.number)
    }
}
