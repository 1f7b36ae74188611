//! Recordings in numbers, read apart from the planner and the verifier.

use remat_trace::{Event, TraceOutput, TraceOutputKind};
use std::collections::BTreeMap;

/// Ops, tensors and storages, each numbered as in plans.
#[derive(Debug, Default)]
pub(crate) struct Numbered {
    pub(crate) ops: Vec<Op>,
    pub(crate) tensors: Vec<Tensor>,
    pub(crate) storages: Vec<Storage>,
    pub(crate) requests: Vec<Request>,
    /// Tensors that must be there at the end.
    pub(crate) left: Vec<usize>,
    /// Ops, and the places between them at which the recording asks for something, in program order.
    pub(crate) slots: Vec<Slot>,
}

/// An op or a constant.
#[derive(Debug, Default)]
pub(crate) struct Op {
    pub(crate) inputs: Vec<usize>,
    pub(crate) outputs: Vec<usize>,
    pub(crate) workspace: u64,
    pub(crate) cost: u64,
    /// Whether it may run again.
    pub(crate) repeatable: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Tensor {
    pub(crate) storage: usize,
    pub(crate) op: usize,
    pub(crate) made: Made,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Made {
    Fresh,
    View,
    /// In the block of this storage.
    InPlace(usize),
}

#[derive(Debug)]
pub(crate) struct Storage {
    pub(crate) bytes: u64,
    pub(crate) constant: bool,
    /// The number of ops before the recording ceased to refer to it.
    pub(crate) released: Option<usize>,
}

/// A tensor asked for outside ops.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// The number of ops before.
    pub(crate) before: usize,
    pub(crate) slot: usize,
    pub(crate) tensor: usize,
    pub(crate) pins: bool,
}

#[derive(Debug)]
pub(crate) enum Slot {
    Op(usize),
    /// These tensors are there.
    Tensors(Vec<usize>),
    /// This storage has been there, and need not be any longer.
    Storage(usize),
}

impl Numbered {
    pub(crate) fn of(events: &[Event]) -> Numbered {
        let mut numbered = Numbered::default();
        // Of each tensor that is referred to, its number and how often.
        let mut named: BTreeMap<u64, (usize, u32)> = BTreeMap::new();
        let mut pinned: Vec<usize> = Vec::new();
        for event in events {
            match event {
                Event::Constant { tensor, bytes, .. } => {
                    named.insert(*tensor, (numbered.tensors.len(), 1));
                    numbered.constant(*bytes);
                }
                Event::Op { outputs, .. } => {
                    let of = |id: &u64| named[id].0;
                    numbered.op(event, of);
                    let first = numbered.tensors.len() - outputs.len();
                    for (output, number) in outputs.iter().zip(first..) {
                        named.insert(output.tensor, (number, 1));
                    }
                }
                Event::Retain { tensor } => named.get_mut(tensor).unwrap().1 += 1,
                Event::Release { tensor } => {
                    let (number, count) = named.get_mut(tensor).unwrap();
                    *count -= 1;
                    if *count == 0 {
                        let storage = numbered.tensors[*number].storage;
                        named.remove(tensor);
                        let same =
                            |&(other, _): &(usize, u32)| numbered.tensors[other].storage == storage;
                        if !named.values().any(same) {
                            numbered.release(storage, pinned.contains(&storage));
                        }
                    }
                }
                Event::Pin { tensor } => {
                    let tensor = named[tensor].0;
                    pinned.push(numbered.tensors[tensor].storage);
                    numbered.ask(&[tensor], true);
                }
                Event::Ensure { tensors } => {
                    let tensors: Vec<usize> = tensors.iter().map(|id| named[id].0).collect();
                    numbered.ask(&tensors, false);
                }
                Event::Mark { .. } | Event::Plan(_) => {}
            }
        }
        numbered.left = named.values().map(|&(number, _)| number).collect();
        numbered.slots.push(Slot::Tensors(numbered.left.clone()));
        numbered
    }

    fn constant(&mut self, bytes: u64) {
        self.slots.push(Slot::Op(self.ops.len()));
        self.tensors.push(Tensor {
            storage: self.storages.len(),
            op: self.ops.len(),
            made: Made::Fresh,
        });
        self.ops.push(Op {
            outputs: vec![self.tensors.len() - 1],
            ..Op::default()
        });
        self.storage(bytes, true);
    }

    fn storage(&mut self, bytes: u64, constant: bool) {
        self.storages.push(Storage {
            bytes,
            constant,
            released: None,
        });
    }

    fn op(&mut self, event: &Event, of: impl Fn(&u64) -> usize) {
        let Event::Op {
            inputs,
            outputs,
            workspace,
            cost,
            replay,
            ..
        } = event
        else {
            return;
        };
        let op = self.ops.len();
        self.slots.push(Slot::Op(op));
        let inputs: Vec<usize> = inputs.iter().map(of).collect();
        let first = self.tensors.len();
        for TraceOutput { kind, .. } in outputs {
            let input = |of: usize| self.tensors[inputs[of]].storage;
            let own = self.storages.len();
            let (storage, made) = match *kind {
                TraceOutputKind::Fresh { bytes, .. } => {
                    self.storage(bytes, false);
                    (own, Made::Fresh)
                }
                TraceOutputKind::Alias { of } => (input(of), Made::View),
                TraceOutputKind::InPlace { of } => {
                    let old = input(of);
                    self.storage(self.storages[old].bytes, false);
                    (own, Made::InPlace(old))
                }
            };
            self.tensors.push(Tensor { storage, op, made });
        }
        self.ops.push(Op {
            inputs,
            outputs: (first..self.tensors.len()).collect(),
            workspace: *workspace,
            cost: *cost,
            repeatable: *replay,
        });
    }

    fn ask(&mut self, tensors: &[usize], pins: bool) {
        let (before, slot) = (self.ops.len(), self.slots.len());
        let asked = tensors.iter().map(|&tensor| Request {
            before,
            slot,
            tensor,
            pins,
        });
        self.requests.extend(asked);
        self.slots.push(Slot::Tensors(tensors.to_vec()));
    }

    fn release(&mut self, storage: usize, pinned: bool) {
        self.storages[storage].released = Some(self.ops.len());
        if pinned && !self.is_written(storage) {
            self.slots.push(Slot::Storage(storage));
        }
    }

    /// Whether an op wrote into a storage.
    pub(crate) fn is_written(&self, storage: usize) -> bool {
        let mut made = self.tensors.iter().map(|tensor| tensor.made);
        made.any(|made| made == Made::InPlace(storage))
    }
}
