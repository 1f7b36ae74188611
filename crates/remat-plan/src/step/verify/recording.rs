//! A recording as the verifier reads it, in flat arrays.

use super::fault::Fault;
use remat_trace::{Event, TraceOutput, TraceOutputKind};
use std::collections::HashMap;
use std::ops::Range;

/// The device whose memory counts.
const DEVICE: u8 = 0;

/// Ops, constants among them, and tensors and storages, each numbered from 0 in the order of the recording.
#[derive(Default)]
pub(super) struct Recording {
    pub(super) ops: Vec<Op>,
    pub(super) storages: Vec<Storage>,
    pub(super) tensors: Vec<Tensor>,
    /// Tensors that ops read, one op after the other.
    pub(super) inputs: Vec<usize>,
    /// Tensors asked for outside ops, in order.
    pub(super) asked: Vec<Asked>,
    /// Tensors that are still referred to after the last event.
    pub(super) left: Vec<usize>,
}

pub(super) struct Op {
    /// A range of [`Recording::inputs`].
    pub(super) inputs: Range<usize>,
    /// The tensors it makes.
    pub(super) outputs: Range<usize>,
    pub(super) workspace: u64,
    pub(super) cost: u64,
    pub(super) again: Again,
}

/// Whether an op may run again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Again {
    Allowed,
    Forbidden,
}

pub(super) struct Storage {
    pub(super) bytes: u64,
    pub(super) constant: bool,
    /// The number of ops before the last release of its last tensor; none while the recording refers to one.
    pub(super) released: Option<usize>,
}

#[derive(Clone, Copy)]
pub(super) struct Tensor {
    pub(super) storage: usize,
    pub(super) made: Made,
}

/// How a tensor comes into being.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Made {
    /// With a storage of its own.
    Fresh,
    /// As a view of a storage, by this op.
    View(usize),
    /// With the block of this storage, which the op writes into.
    InPlace(usize),
}

/// A tensor asked for between the first runs of two ops.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    /// The later of the two, or the number of ops.
    pub(super) before: usize,
    pub(super) tensor: usize,
    pub(super) how: Ask,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ask {
    /// It stays from there on, as long as the recording refers to it.
    Pin,
    /// It is read there.
    Ensure,
}

impl Recording {
    pub(super) fn of<'a>(events: impl IntoIterator<Item = &'a Event>) -> Result<Recording, Fault> {
        let mut reader = Reader::default();
        for (event, happened) in events.into_iter().enumerate() {
            let told = reader.take(happened);
            told.map_err(|fault| Fault::Event { event, fault })?;
        }
        let mut recording = reader.recording;
        recording.left = reader.named.values().map(|named| named.tensor).collect();
        // A map has no order, and a fault that is told is always the same.
        recording.left.sort_unstable();
        Ok(recording)
    }
}

/// A tensor by its id in the recording.
struct Named {
    tensor: usize,
    references: u64,
}

#[derive(Default)]
struct Reader {
    recording: Recording,
    /// Tensors that are referred to.
    named: HashMap<u64, Named>,
    /// Of each storage the tensors that are referred to.
    referred: Vec<u64>,
    /// Storages that the op being read writes into.
    written: Vec<usize>,
}

type Told<T> = Result<T, &'static str>;

impl Reader {
    fn take(&mut self, event: &Event) -> Told<()> {
        match event {
            Event::Constant {
                tensor,
                bytes,
                device,
            } => self.constant(*tensor, *bytes, *device),
            Event::Op {
                inputs,
                outputs,
                workspace,
                workspace_device,
                cost,
                replay,
                ..
            } => {
                let again = if *replay {
                    Again::Allowed
                } else {
                    Again::Forbidden
                };
                let workspace = on_device(*workspace, *workspace_device);
                self.op(inputs, outputs, (workspace, *cost, again))
            }
            Event::Retain { tensor } => self.refer(*tensor),
            Event::Release { tensor } => self.release(*tensor),
            Event::Pin { tensor } => self.ask(*tensor, Ask::Pin),
            Event::Ensure { tensors } => {
                let mut each = tensors.iter();
                each.try_for_each(|&tensor| self.ask(tensor, Ask::Ensure))
            }
            Event::Mark { .. } | Event::Plan(_) => Ok(()),
        }
    }

    fn constant(&mut self, tensor: u64, bytes: u64, device: u8) -> Told<()> {
        let recording = &mut self.recording;
        let (read, made) = (recording.inputs.len(), recording.tensors.len());
        recording.ops.push(Op {
            inputs: read..read,
            outputs: made..made + 1,
            workspace: 0,
            cost: 0,
            again: Again::Forbidden,
        });
        let storage = self.storage(on_device(bytes, device), true);
        self.name(
            tensor,
            Tensor {
                storage,
                made: Made::Fresh,
            },
        )
    }

    fn op(
        &mut self,
        inputs: &[u64],
        outputs: &[TraceOutput],
        (workspace, cost, again): (u64, u64, Again),
    ) -> Told<()> {
        let read = self.recording.inputs.len();
        for &input in inputs {
            let tensor = self.tensor(input)?;
            self.recording.inputs.push(tensor);
        }
        let made = self.recording.tensors.len();
        self.recording.ops.push(Op {
            inputs: read..read + inputs.len(),
            outputs: made..made + outputs.len(),
            workspace,
            cost,
            again,
        });
        self.written.clear();
        for output in outputs {
            let tensor = self.output(output, read..read + inputs.len())?;
            self.name(output.tensor, tensor)?;
        }
        self.written.sort_unstable();
        if self.written.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err("writes into a storage twice");
        }
        Ok(())
    }

    fn output(&mut self, output: &TraceOutput, inputs: Range<usize>) -> Told<Tensor> {
        let recording = &self.recording;
        let input = |of: usize| {
            let tensor = recording.inputs[inputs.clone()].get(of);
            let tensor = *tensor.ok_or("makes an output of an input that the op has not")?;
            Ok::<usize, &'static str>(recording.tensors[tensor].storage)
        };
        Ok(match output.kind {
            TraceOutputKind::Fresh { bytes, device } => Tensor {
                storage: self.storage(on_device(bytes, device), false),
                made: Made::Fresh,
            },
            TraceOutputKind::Alias { of } => Tensor {
                storage: input(of)?,
                made: Made::View(recording.ops.len() - 1),
            },
            TraceOutputKind::InPlace { of } => {
                let old = input(of)?;
                let bytes = recording.storages[old].bytes;
                self.written.push(old);
                Tensor {
                    storage: self.storage(bytes, false),
                    made: Made::InPlace(old),
                }
            }
        })
    }

    fn storage(&mut self, bytes: u64, constant: bool) -> usize {
        self.recording.storages.push(Storage {
            bytes,
            constant,
            released: None,
        });
        self.referred.push(0);
        self.recording.storages.len() - 1
    }

    fn name(&mut self, id: u64, tensor: Tensor) -> Told<()> {
        let named = Named {
            tensor: self.recording.tensors.len(),
            references: 1,
        };
        self.recording.tensors.push(tensor);
        self.referred[tensor.storage] += 1;
        match self.named.insert(id, named) {
            None => Ok(()),
            Some(_) => Err("makes a tensor that is there already"),
        }
    }

    fn tensor(&self, id: u64) -> Told<usize> {
        let named = self.named.get(&id);
        Ok(named.ok_or(NOT_THERE)?.tensor)
    }

    fn refer(&mut self, id: u64) -> Told<()> {
        let named = self.named.get_mut(&id).ok_or(NOT_THERE)?;
        named.references += 1;
        Ok(())
    }

    fn release(&mut self, id: u64) -> Told<()> {
        let named = self.named.get_mut(&id).ok_or(NOT_THERE)?;
        named.references -= 1;
        if named.references == 0 {
            let storage = self.recording.tensors[named.tensor].storage;
            self.named.remove(&id);
            self.referred[storage] -= 1;
            if self.referred[storage] == 0 {
                self.recording.storages[storage].released = Some(self.recording.ops.len());
            }
        }
        Ok(())
    }

    fn ask(&mut self, id: u64, how: Ask) -> Told<()> {
        let tensor = self.tensor(id)?;
        let before = self.recording.ops.len();
        self.recording.asked.push(Asked {
            before,
            tensor,
            how,
        });
        Ok(())
    }
}

const NOT_THERE: &str = "names a tensor that is not there";

fn on_device(bytes: u64, device: u8) -> u64 {
    if device == DEVICE { bytes } else { 0 }
}
