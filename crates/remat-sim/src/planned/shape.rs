//! A recorded step as plans see it.

use crate::recorded::{Instruction, Mutations, Recorded};
use remat_core::{Bytes, DeviceId, OpId, Output, TensorId};

/// The ops of a step as plans number them, constants among them, and what is asked for between their first runs.
#[derive(Default)]
pub(super) struct Shape {
    pub(super) ops: Vec<PlannedOp>,
    pub(super) storages: Vec<StorageShape>,
}

pub(super) struct PlannedOp {
    /// A constant's bytes and device, or the number among ops alone.
    pub(super) kind: Kind,
    pub(super) outputs: Vec<Made>,
    /// Whether it takes workspace of device 0.
    pub(super) works: bool,
    /// The tensors that are read or pinned between this op and the next one.
    pub(super) asked: Vec<TensorId>,
}

#[derive(Clone, Copy)]
pub(super) enum Kind {
    Constant(Bytes, DeviceId),
    Op(OpId),
}

/// A tensor that an op makes.
#[derive(Clone, Copy)]
pub(super) struct Made {
    pub(super) tensor: TensorId,
    pub(super) storage: u32,
    pub(super) how: How,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    Fresh,
    View,
    /// In the block of this storage.
    InPlace(u32),
}

#[derive(Default)]
pub(super) struct StorageShape {
    /// All tensors of it, each with the number of the op that makes it.
    pub(super) tensors: Vec<(u32, TensorId)>,
    /// Bytes on device 0.
    pub(super) bytes: u64,
    /// The ops that read it.
    pub(super) readers: Vec<u32>,
}

impl Shape {
    pub(super) fn of(step: &Recorded) -> Shape {
        let mut shape = Shape::default();
        // By tensor.
        let mut storage_of: Vec<u32> = Vec::new();
        for instruction in &step.instructions {
            match *instruction {
                Instruction::Constant { bytes, device } => {
                    let made = shape.make(&mut storage_of, on_device(bytes, device), How::Fresh);
                    shape.ops.push(PlannedOp {
                        kind: Kind::Constant(bytes, device),
                        outputs: vec![made],
                        works: false,
                        asked: Vec::new(),
                    });
                }
                Instruction::Op(op) => {
                    let planned = shape.op(step, op, &mut storage_of);
                    shape.ops.push(planned);
                }
                Instruction::Pin(tensor) | Instruction::Bring(tensor) => shape.ask(&[tensor]),
                Instruction::Ensure { from, to } => shape.ask(step.tensors(from, to)),
                Instruction::Retain(_) | Instruction::Release(_) | Instruction::Plan(_) => {}
            }
        }
        shape
    }

    fn op(&mut self, step: &Recorded, op: u32, storage_of: &mut Vec<u32>) -> PlannedOp {
        let (spec, _) = step.op(op, Mutations::Recorded);
        let viewed = |of: usize, storage_of: &[u32]| {
            let input = spec.inputs.get(of).map(|input| input.index());
            input.and_then(|input| storage_of.get(input)).copied()
        };
        let reader = self.ops.len() as u32;
        for input in spec.inputs {
            if let Some(&storage) = storage_of.get(input.index()) {
                let readers = &mut self.storages[storage as usize].readers;
                if readers.last() != Some(&reader) {
                    readers.push(reader);
                }
            }
        }
        let mut outputs = Vec::with_capacity(spec.outputs.len());
        for &output in spec.outputs {
            let made = match output {
                Output::Fresh { bytes, device } => {
                    self.make(storage_of, on_device(bytes, device), How::Fresh)
                }
                // A tensor that was never made is refused by the engine.
                Output::Alias { of } => match viewed(of, storage_of) {
                    Some(storage) => self.view(storage_of, storage),
                    None => self.make(storage_of, 0, How::Fresh),
                },
                Output::InPlace { of } => match viewed(of, storage_of) {
                    Some(old) => {
                        let bytes = self.storages[old as usize].bytes;
                        self.make(storage_of, bytes, How::InPlace(old))
                    }
                    None => self.make(storage_of, 0, How::Fresh),
                },
            };
            outputs.push(made);
        }
        PlannedOp {
            kind: Kind::Op(OpId(op)),
            outputs,
            works: on_device(spec.workspace, spec.workspace_device) > 0,
            asked: Vec::new(),
        }
    }

    /// A storage that the op being read makes, and its first tensor.
    fn make(&mut self, storage_of: &mut Vec<u32>, bytes: u64, how: How) -> Made {
        let storage = self.storages.len() as u32;
        self.storages.push(StorageShape {
            tensors: Vec::new(),
            bytes,
            readers: Vec::new(),
        });
        let Made { tensor, .. } = self.view(storage_of, storage);
        Made {
            tensor,
            storage,
            how,
        }
    }

    fn view(&mut self, storage_of: &mut Vec<u32>, storage: u32) -> Made {
        let tensor = TensorId(storage_of.len() as u32);
        storage_of.push(storage);
        let op = self.ops.len() as u32;
        self.storages[storage as usize].tensors.push((op, tensor));
        Made {
            tensor,
            storage,
            how: How::View,
        }
    }

    /// Asks before the first op for nothing: no tensor is there.
    fn ask(&mut self, tensors: &[TensorId]) {
        if let Some(op) = self.ops.last_mut() {
            op.asked.extend_from_slice(tensors);
        }
    }
}

fn on_device(bytes: Bytes, device: DeviceId) -> u64 {
    match device {
        DeviceId(0) => bytes.0,
        _ => 0,
    }
}
