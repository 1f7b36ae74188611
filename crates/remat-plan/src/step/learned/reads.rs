//! Who reads what in a recorded step, and how long the program refers to it.

use remat_core::{Origin, Output, Recorded, Replay, Told};
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
                let storage = self.store(Storage {
                    references,
                    constant: pinned,
                    bytes: bytes.0,
                    made: None,
                    made_before,
                });
                let there = Tensor {
                    storage,
                    makers: Vec::new(),
                    // A constant stays in any case.
                    before: made_before.filter(|_| !pinned).map(|(op, _)| op),
                };
                self.tensors.insert(tensor, there);
            }
            Told::Op {
                inputs,
                outputs,
                replay,
                workspace_device,
                ..
            } => {
                let place = self.ops.len() as u32;
                let mut op = Op {
                    readers: Vec::new(),
                    next_readers: Vec::new(),
                    writes: Vec::new(),
                    event: number,
                    here: *workspace_device == recorded.device,
                    results: Vec::with_capacity(outputs.len()),
                };
                let read: Vec<Option<Tensor>> = inputs
                    .iter()
                    .map(|input| self.tensors.get(input).cloned())
                    .collect();
                for &maker in read.iter().flatten().flat_map(|tensor| &tensor.makers) {
                    let readers = &mut self.ops[maker as usize].readers;
                    if readers.last() != Some(&place) {
                        readers.push(place);
                    }
                }
                let across = read.iter().flatten().filter_map(|tensor| tensor.before);
                self.across.extend(across.map(|maker| (maker, place)));
                for (at, output) in (0..).zip(outputs) {
                    let made = Some((place, at));
                    let evictable = *replay == Replay::Allowed;
                    let of = |of: usize| read.get(of).cloned().flatten();
                    let (tensor, result) = match output.output {
                        Output::Fresh { bytes, device } => {
                            op.here &= device == recorded.device;
                            let storage = self.store(Storage {
                                references: 1,
                                constant: !evictable,
                                bytes: bytes.0,
                                made,
                                made_before: None,
                            });
                            (
                                Some((storage, Vec::new(), None)),
                                Some((bytes.0, evictable)),
                            )
                        }
                        Output::InPlace { of: input } => match of(input) {
                            None => (None, None),
                            Some(Tensor {
                                storage,
                                makers,
                                before,
                            }) => {
                                op.writes.extend_from_slice(&makers);
                                let old = &self.storages[storage];
                                self.ends.extend(old.made_before.map(|made| (made, number)));
                                let (bytes, evictable) = (old.bytes, evictable && !old.constant);
                                let storage = self.store(Storage {
                                    references: 1,
                                    constant: !evictable,
                                    bytes,
                                    made,
                                    made_before: None,
                                });
                                (Some((storage, makers, before)), Some((bytes, evictable)))
                            }
                        },
                        Output::Alias { of: input } => match of(input) {
                            None => (None, None),
                            Some(Tensor {
                                storage,
                                makers,
                                before,
                            }) => {
                                let references = &mut self.storages[storage].references;
                                *references = references.saturating_add(1);
                                (Some((storage, makers, before)), None)
                            }
                        },
                    };
                    match tensor {
                        Some((storage, mut makers, before)) => {
                            makers.push(place);
                            let tensor = Tensor {
                                storage,
                                makers,
                                before,
                            };
                            self.tensors.insert(output.tensor, tensor);
                        }
                        // It writes into or views what is not known.
                        None => op.here = false,
                    }
                    op.results.push(result.map(|(bytes, evictable)| Result {
                        bytes,
                        evictable,
                        until: recorded.events.len(),
                        pinned: false,
                        until_next: recorded.events.len(),
                    }));
                }
                self.ops.push(op);
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
