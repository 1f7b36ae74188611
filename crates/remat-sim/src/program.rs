//! A recorded step, ready to be replayed many times.

use crate::attention::Role;
use crate::kind;
use crate::selective::Drops;
use crate::NoAttention;
use remat_core::{Bytes, Cost, Expected, Kind, OpSpec, Output, PoolId, Replay, TensorId};
use remat_trace::{Event, Format, TraceError, TraceOutputKind};
use std::collections::HashMap;
use std::path::Path;
use std::sync::OnceLock;

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
    /// What the ops make, one after the other, by [`Mutations`].
    outputs: [Vec<Output>; 2],
    /// What was recorded of mutations.
    recorded: Mutations,
    tensors: u32,
    constant_bytes: u64,
    bottleneck: u64,
    /// The step with its attention dropped and recomputed; made when it is first asked for.
    drops: OnceLock<Result<Drops, NoAttention>>,
}

/// What happened, in order.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Instruction {
    Constant {
        bytes: Bytes,
        pool: PoolId,
    },
    Op(u32),
    Retain(TensorId),
    Release(TensorId),
    Pin(TensorId),
    Ensure {
        from: u32,
        to: u32,
    },
    /// As [`Ensure`](Instruction::Ensure); by a plan, not by the program.
    Bring(TensorId),
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
    kind: Kind,
    role: Role,
}

/// What an op does that changes a tensor (Coop section 3.5, figure 3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mutations {
    /// As was recorded: in place in Remat's traces, into copies in DTR logs.
    #[default]
    Recorded,
    /// It writes into the tensor's block; the old value counts as evicted.
    InPlace,
    /// It writes into a copy.
    Copied,
}

impl Program {
    /// Reads a trace or log, plain or packed (gzip, zstd); `-` is standard input.
    ///
    /// # Errors
    /// What [`remat_trace::open`] and the reader find wrong, with file and line.
    pub fn open(path: impl AsRef<Path>) -> Result<Program, TraceError> {
        let reader = remat_trace::open(path)?.with_mutations_in_place();
        Program::read_as(reader.format(), reader)
    }

    /// Takes events in from a reader.
    ///
    /// # Errors
    /// The first error that the reader gives.
    pub fn read<E>(events: impl IntoIterator<Item = Result<Event, E>>) -> Result<Program, E> {
        Program::read_as(Format::Remat, events)
    }

    /// [`read`](Program::read) of what was recorded in a format: mutations of DTR logs were recorded as copies, though
    /// [`with_mutations_in_place`](remat_trace::TraceReader::with_mutations_in_place) they are read otherwise.
    ///
    /// # Errors
    /// The first error that the reader gives.
    pub fn read_as<E>(
        format: Format,
        events: impl IntoIterator<Item = Result<Event, E>>,
    ) -> Result<Program, E> {
        let mut writer = Writer::default();
        writer.program.recorded = match format {
            Format::Remat => Mutations::InPlace,
            Format::Dtr => Mutations::Copied,
        };
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
    pub(crate) fn op(&self, op: u32, mutations: Mutations) -> (OpSpec<'_>, Expected) {
        let (inputs, outputs) = (self.inputs_of(op), self.outputs_of(op, mutations));
        let op = &self.ops[op as usize];
        let spec = OpSpec {
            inputs,
            outputs,
            workspace: op.workspace,
            workspace_pool: op.workspace_pool,
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

    /// The step as [selective recomputation](crate::Eviction::Selective) runs it.
    ///
    /// # Errors
    /// [`NoAttention`] if the names of the ops tell of none.
    pub(crate) fn drops(&self) -> Result<&Drops, NoAttention> {
        let drops = self.drops.get_or_init(|| Drops::of(self));
        drops.as_ref().map_err(|&none| none)
    }

    /// Whether the step has attention that [`Eviction::Selective`](crate::Eviction::Selective) can drop.
    ///
    /// # Errors
    /// Why it has not, in words.
    pub fn check_attention(&self) -> Result<(), NoAttention> {
        self.drops().map(drop)
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
    /// Of its storage.
    storage_bytes: u64,
    pool: u8,
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
                self.define(*tensor, *bytes, *bytes, *pool);
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
            name,
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
        let ids = inputs;
        let inputs = self.read(ids);
        let first = self.program.outputs[0].len() as u32;
        for output in outputs {
            let of = match output.kind {
                TraceOutputKind::Fresh { .. } => None,
                TraceOutputKind::Alias { of } | TraceOutputKind::InPlace { of } => ids.get(of),
            };
            let of = of.and_then(|tensor| self.made.get(tensor)).copied();
            let viewed = of.map_or((0, 0), |made| (made.storage_bytes, made.pool));
            let (storage_bytes, pool) = match output.kind {
                TraceOutputKind::Fresh { bytes, pool } => (bytes, pool),
                _ => viewed,
            };
            let copied = self.program.recorded == Mutations::Copied;
            let bytes = match output.kind {
                TraceOutputKind::InPlace { .. } if !copied => 0,
                TraceOutputKind::Alias { .. } => 0,
                _ => storage_bytes,
            };
            together = together.saturating_add(bytes);
            self.define(output.tensor, bytes, storage_bytes, pool);
            self.program.outputs[0].push(output.kind.into());
            self.program.outputs[1].push(match output.kind {
                TraceOutputKind::InPlace { .. } => Output::Fresh {
                    bytes: Bytes(storage_bytes),
                    pool: PoolId(pool),
                },
                kind => kind.into(),
            });
        }
        self.program.bottleneck = self.program.bottleneck.max(together);
        self.program.ops.push(Op {
            inputs,
            outputs: (first, self.program.outputs[0].len() as u32),
            workspace: Bytes(*workspace),
            workspace_pool: PoolId(*workspace_pool),
            cost: Cost(*cost),
            replay: if *replay {
                Replay::Allowed
            } else {
                Replay::Forbidden
            },
            kind: kind::of(name),
            role: Role::of(name),
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

    fn define(&mut self, tensor: u64, bytes: u64, storage_bytes: u64, pool: u8) {
        let number = TensorId(self.program.tensors);
        self.program.tensors += 1;
        let made = Made {
            number,
            bytes,
            storage_bytes,
            pool,
        };
        self.made.insert(tensor, made);
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
