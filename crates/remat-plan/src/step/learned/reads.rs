//! Who reads what in a recorded step, and how long the program refers to it.

use remat_core::{Origin, Output, Recorded, Replay, Told, ToldOutput};
use std::collections::HashMap;

/// An op of the step.
#[derive(Debug)]
pub(super) struct Op {
    /// The ops that read its results, by place.
    pub(super) readers: Vec<u32>,
    /// Those of the next step.
    pub(super) next_readers: Vec<u32>,
    /// The ops whose blocks it writes into.
    pub(super) writes: Vec<u32>,
    /// The number of its event.
    pub(super) event: usize,
    /// Its results and what it takes beside them lie in the memory that is planned.
    pub(super) here: bool,
    /// Its results, by their places; `None` for views.
    pub(super) results: Vec<Option<Result>>,
}

/// A storage that an op made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Result {
    pub(super) bytes: u64,
    /// It is no constant from the start.
    pub(super) evictable: bool,
    /// The number of the event with which the last reference went, or it was pinned; that of all events if neither.
    pub(super) until: usize,
    /// It was pinned by then.
    pub(super) pinned: bool,
    /// Of one that the next step finds, the number of the event there with which the last reference goes, or it is
    /// pinned or written over; that of all events if none is.
    pub(super) until_next: usize,
}

/// The ops of a step.
#[derive(Debug)]
pub(super) struct Reads {
    pub(super) ops: Vec<Op>,
    pub(super) events: usize,
}

/// A storage of the step: references to it, and where it is among the results, or those of the step before.
struct Storage {
    references: u32,
    constant: bool,
    bytes: u64,
    made: Option<(u32, u32)>,
    made_before: Option<(u32, u32)>,
}

/// A tensor: its storage, and the ops that made it and what it views.
#[derive(Clone)]
struct Tensor {
    storage: usize,
    makers: Vec<u32>,
    /// The op of the step before that made the storage, if one did and it is no constant.
    before: Option<u32>,
}

/// An op whose outputs are told.
struct Running<'a> {
    op: Op,
    place: u32,
    /// The tensors that it reads, as far as they are known.
    read: Vec<Option<Tensor>>,
    replay: Replay,
    recorded: &'a Recorded,
}

/// The tensors, storages and ops so far.
#[derive(Default)]
struct Walk {
    tensors: HashMap<u64, Tensor>,
    storages: Vec<Storage>,
    ops: Vec<Op>,
    /// Ops, and those that read their results in the next step.
    across: Vec<(u32, u32)>,
    /// Results of the step before, and the event with which they end in this one.
    ends: Vec<((u32, u32), usize)>,
}

impl Reads {
    /// From a recording.
    pub(super) fn of(recorded: &Recorded) -> Reads {
        let mut walk = Walk::default();
        let events = recorded.events.len();
        for (number, told) in recorded.events.iter().enumerate() {
            walk.hear(recorded, number, told);
        }
        // Steps follow one another: what this one leaves is read as what the one before left.
        for (maker, reader) in std::mem::take(&mut walk.across) {
            if let Some(op) = walk.ops.get_mut(maker as usize) {
                op.next_readers.push(reader);
            }
        }
        for ((op, output), number) in std::mem::take(&mut walk.ends) {
            let results = walk.ops.get_mut(op as usize).map(|op| &mut op.results);
            if let Some(Some(result)) = results.and_then(|results| results.get_mut(output as usize))
            {
                result.until_next = result.until_next.min(number);
            }
        }
        Reads {
            ops: walk.ops,
            events,
        }
    }

    /// A result of an op.
    pub(super) fn result(&self, op: u32, output: u32) -> Option<&Result> {
        self.ops
            .get(op as usize)?
            .results
            .get(output as usize)?
            .as_ref()
    }
}

impl Walk {
    fn hear(&mut self, recorded: &Recorded, number: usize, told: &Told) {
        match told {
            &Told::There {
                tensor,
                bytes,
                references,
                pinned,
                origin,
                ..
            } => {
                let made_before = match origin {
                    Some(Origin::Made { op, output }) => Some((op, output)),
                    _ => None,
                };
                let storage = Storage {
                    references,
                    constant: pinned,
                    bytes: bytes.0,
                    made: None,
                    made_before,
                };
                self.there(tensor, storage);
            }
            Told::Op {
                inputs,
                outputs,
                replay,
                workspace_device,
                ..
            } => {
                let read = inputs.iter().map(|input| self.tensors.get(input).cloned());
                let running = Running {
                    place: self.ops.len() as u32,
                    read: read.collect(),
                    replay: *replay,
                    recorded,
                    op: Op {
                        readers: Vec::new(),
                        next_readers: Vec::new(),
                        writes: Vec::new(),
                        event: number,
                        here: *workspace_device == recorded.device,
                        results: Vec::with_capacity(outputs.len()),
                    },
                };
                self.op(running, outputs);
            }
            Told::Retain(tensor) => {
                if let Some(tensor) = self.tensors.get(tensor) {
                    let references = &mut self.storages[tensor.storage].references;
                    *references = references.saturating_add(1);
                }
            }
            Told::Release(tensor) => {
                if let Some(tensor) = self.tensors.get(tensor) {
                    let at = tensor.storage;
                    let storage = &mut self.storages[at];
                    storage.references = storage.references.saturating_sub(1);
                    if storage.references == 0 {
                        self.end(at, number, false);
                    }
                }
            }
            Told::Pin(tensor) => {
                if let Some(tensor) = self.tensors.get(tensor) {
                    let at = tensor.storage;
                    self.storages[at].constant = true;
                    self.end(at, number, true);
                }
            }
            _ => {}
        }
    }

    /// A storage is there before an op of the step made it.
    fn there(&mut self, tensor: u64, storage: Storage) {
        // A constant stays in any case.
        let before = storage.made_before.filter(|_| !storage.constant);
        let there = Tensor {
            before: before.map(|(op, _)| op),
            storage: self.store(storage),
            makers: Vec::new(),
        };
        self.tensors.insert(tensor, there);
    }

    /// An op ran.
    fn op(&mut self, mut running: Running<'_>, outputs: &[ToldOutput]) {
        let place = running.place;
        let read = || running.read.iter().flatten();
        for &maker in read().flat_map(|tensor| &tensor.makers) {
            let readers = &mut self.ops[maker as usize].readers;
            if readers.last() != Some(&place) {
                readers.push(place);
            }
        }
        let across = read().filter_map(|tensor| tensor.before);
        self.across.extend(across.map(|maker| (maker, place)));
        for (at, told) in (0..).zip(outputs) {
            let (tensor, result) = self.output(&mut running, at, told.output);
            match tensor {
                Some(mut tensor) => {
                    tensor.makers.push(place);
                    self.tensors.insert(told.tensor, tensor);
                }
                // It writes into or views what is not known.
                None => running.op.here = false,
            }
            running.op.results.push(result);
        }
        self.ops.push(running.op);
    }

    /// An output of an op: its tensor, as far as it is known, and the result if it is no view.
    fn output(
        &mut self,
        running: &mut Running<'_>,
        at: u32,
        output: Output,
    ) -> (Option<Tensor>, Option<Result>) {
        match output {
            Output::Fresh { bytes, device } => {
                running.op.here &= device == running.recorded.device;
                let (storage, result) = self.result(running, at, bytes.0, running.replay);
                let tensor = Tensor {
                    storage,
                    makers: Vec::new(),
                    before: None,
                };
                (Some(tensor), Some(result))
            }
            Output::InPlace { of } => self.in_place(running, at, of).unzip(),
            Output::Alias { of } => (self.alias(running, of), None),
        }
    }

    /// The new value of the storage of an input.
    fn in_place(
        &mut self,
        running: &mut Running<'_>,
        at: u32,
        of: usize,
    ) -> Option<(Tensor, Result)> {
        let tensor = running.read.get(of).cloned()??;
        running.op.writes.extend_from_slice(&tensor.makers);
        let old = &self.storages[tensor.storage];
        let ends = old.made_before.map(|made| (made, running.op.event));
        self.ends.extend(ends);
        let replay = if old.constant {
            Replay::Forbidden
        } else {
            running.replay
        };
        let (storage, result) = self.result(running, at, old.bytes, replay);
        Some((Tensor { storage, ..tensor }, result))
    }

    /// A view of an input.
    fn alias(&mut self, running: &Running<'_>, of: usize) -> Option<Tensor> {
        let tensor = running.read.get(of).cloned()??;
        let references = &mut self.storages[tensor.storage].references;
        *references = references.saturating_add(1);
        Some(tensor)
    }

    /// The storage of a result, and the result.
    fn result(
        &mut self,
        running: &Running<'_>,
        at: u32,
        bytes: u64,
        replay: Replay,
    ) -> (usize, Result) {
        let evictable = replay == Replay::Allowed;
        let storage = self.store(Storage {
            references: 1,
            constant: !evictable,
            bytes,
            made: Some((running.place, at)),
            made_before: None,
        });
        let events = running.recorded.events.len();
        let result = Result {
            bytes,
            evictable,
            until: events,
            pinned: false,
            until_next: events,
        };
        (storage, result)
    }

    fn store(&mut self, storage: Storage) -> usize {
        self.storages.push(storage);
        self.storages.len() - 1
    }

    fn end(&mut self, storage: usize, number: usize, pinned: bool) {
        let storage = &self.storages[storage];
        self.ends
            .extend(storage.made_before.map(|made| (made, number)));
        let Some((op, output)) = storage.made else {
            return;
        };
        if let Some(result) = &mut self.ops[op as usize].results[output as usize] {
            if number < result.until {
                result.until = number;
                result.pinned = pinned;
            }
        }
    }
}
