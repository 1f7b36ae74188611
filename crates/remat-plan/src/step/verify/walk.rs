//! A plan performed on paper, step by step.

use super::arena::Arena;
use super::fault::{Reason, Undefined};
use super::recording::{Again, Ask, Asked, Made, Recording};
use crate::step::placement::Addresses;
use crate::step::plan::step_plan::Action;

/// A moment: 0 before all steps, and then the number of steps taken.
type Moment = usize;

/// The state of memory between two steps.
pub(super) struct Walk<'a> {
    recording: &'a Recording,
    now: Moment,
    /// Ops that ran for the first time: all before this one.
    pub(super) ran: usize,
    /// Whether each storage is in memory.
    present: Vec<bool>,
    /// The moment at which each storage last came into memory.
    came: Vec<Moment>,
    /// Whether each storage must stay.
    pinned: Vec<bool>,
    /// The moment at which each tensor was last made; 0 for never.
    made: Vec<Moment>,
    /// Requests before this one are met.
    met: usize,
    /// Of the requests from there on that come before the next first run: whether the tensor was defined right after
    /// the last one.
    seen: Vec<bool>,
    /// The moment of the last first run.
    last_first: Moment,
    /// Addresses, if the plan has them; and that of each storage in memory.
    arena: Option<Arena<'a>>,
    lies: Vec<Option<u64>>,
    bytes: u128,
    pub(super) peak: u128,
    pub(super) again_ns: u128,
    pub(super) reruns: u64,
    pub(super) frees: u64,
}

/// The place where a run of an op writes those outputs that are made in place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Blocks {
    /// Into the old blocks.
    Taken,
    /// Into blocks of their own.
    Copied,
}

impl<'a> Walk<'a> {
    pub(super) fn new(recording: &'a Recording, addresses: Option<&'a Addresses>) -> Walk<'a> {
        let storages = recording.storages.len();
        Walk {
            recording,
            now: 0,
            ran: 0,
            present: vec![false; storages],
            came: vec![0; storages],
            pinned: vec![false; storages],
            made: vec![0; recording.tensors.len()],
            met: 0,
            seen: Vec::new(),
            last_first: 0,
            arena: addresses.map(Arena::new),
            lies: vec![None; storages],
            bytes: 0,
            peak: 0,
            again_ns: 0,
            reruns: 0,
            frees: 0,
        }
    }

    pub(super) fn perform(&mut self, action: Action) -> Result<(), Reason> {
        self.now += 1;
        match action {
            Action::Run(op) => self.run(op as usize, Blocks::Copied),
            Action::RunInPlace(op) => self.run(op as usize, Blocks::Taken),
            Action::Free(storage) => self.free(storage as usize),
        }
    }

    /// Checks that the plan may end here.
    pub(super) fn end(&mut self) -> Result<(), Reason> {
        if self.ran < self.recording.ops.len() {
            return Err(Reason::NeverRan(self.ran));
        }
        self.meet_requests()?;
        let mut left = self.recording.left.iter();
        left.try_for_each(|&tensor| self.defined(tensor).map_err(Reason::EndAsks))?;
        self.arena.as_ref().map_or(Ok(()), Arena::end)
    }

    fn run(&mut self, number: usize, wanted: Blocks) -> Result<(), Reason> {
        let ops = &self.recording.ops;
        let op = ops.get(number).ok_or(Reason::NoSuchOp(ops.len()))?;
        if number > self.ran {
            return Err(Reason::NotYet(self.ran));
        }
        let first = number == self.ran;
        let blocks = if first { Blocks::Taken } else { wanted };
        if first {
            self.meet_requests()?;
        } else {
            self.may_run_again(number, wanted)?;
        }
        for &input in &self.recording.inputs[op.inputs.clone()] {
            self.defined(input).map_err(Reason::Reads)?;
        }
        self.place(number, blocks)?;
        self.make(number, blocks);
        if first {
            self.ran += 1;
            self.last_first = self.now;
            self.look_ahead();
        } else {
            self.reruns += 1;
            self.again_ns += u128::from(op.cost);
        }
        Ok(())
    }

    fn may_run_again(&self, number: usize, wanted: Blocks) -> Result<(), Reason> {
        let op = &self.recording.ops[number];
        if op.again == Again::Forbidden {
            return Err(Reason::RunsOnce);
        }
        if wanted == Blocks::Copied {
            return Ok(());
        }
        let mut writes = Err(Reason::WritesNothing);
        for tensor in &self.recording.tensors[op.outputs.clone()] {
            if let Made::InPlace(old) = tensor.made {
                writes = Ok(());
                if self.present[tensor.storage] {
                    return Err(Reason::Present(tensor.storage));
                }
                if self.pinned[old] && !self.is_released(old) {
                    return Err(Reason::Pinned(old));
                }
            }
        }
        writes
    }

    /// Takes blocks for all that an op makes and for its workspace, and gives back those that it needs no longer.
    fn place(&mut self, number: usize, blocks: Blocks) -> Result<(), Reason> {
        let Some(arena) = &mut self.arena else {
            return Ok(());
        };
        let recording = self.recording;
        let op = &recording.ops[number];
        let mut passing = Vec::new();
        for tensor in &recording.tensors[op.outputs.clone()] {
            let (storage, bytes) = (tensor.storage, recording.storages[tensor.storage].bytes);
            match tensor.made {
                Made::View(_) => {}
                Made::InPlace(old) if blocks == Blocks::Taken => {
                    self.lies[storage] = self.lies[old].take();
                }
                Made::Fresh | Made::InPlace(_) if bytes > 0 => {
                    let offset = arena.take(bytes)?;
                    if self.present[storage] {
                        passing.push(offset);
                    } else {
                        self.lies[storage] = Some(offset);
                    }
                }
                Made::Fresh | Made::InPlace(_) => {}
            }
        }
        if op.workspace > 0 {
            passing.push(arena.take(op.workspace)?);
        }
        passing.into_iter().for_each(|offset| arena.give(offset));
        Ok(())
    }

    /// Takes memory for all that an op makes, and gives back what was there twice.
    fn make(&mut self, number: usize, blocks: Blocks) {
        let recording = self.recording;
        let op = &recording.ops[number];
        let outputs = &recording.tensors[op.outputs.clone()];
        let mut during = self.bytes + u128::from(op.workspace);
        for tensor in outputs {
            let bytes = u128::from(recording.storages[tensor.storage].bytes);
            match tensor.made {
                Made::View(_) => {}
                Made::InPlace(old) if blocks == Blocks::Taken => {
                    self.present[old] = false;
                    self.pinned[old] = false;
                    self.come(tensor.storage);
                }
                Made::Fresh | Made::InPlace(_) => {
                    during += bytes;
                    if !self.present[tensor.storage] {
                        self.bytes += bytes;
                        self.come(tensor.storage);
                    }
                }
            }
        }
        self.peak = self.peak.max(during);
        for tensor in op.outputs.clone() {
            if self.present[recording.tensors[tensor].storage] {
                self.made[tensor] = self.now;
            }
        }
    }

    fn come(&mut self, storage: usize) {
        self.present[storage] = true;
        self.came[storage] = self.now;
    }

    fn free(&mut self, number: usize) -> Result<(), Reason> {
        let storages = &self.recording.storages;
        let storage = storages
            .get(number)
            .ok_or(Reason::NoSuchStorage(storages.len()))?;
        if !self.present[number] {
            return Err(Reason::Absent(number));
        }
        if storage.constant {
            return Err(Reason::Constant(number));
        }
        if self.pinned[number] && !self.is_released(number) {
            return Err(Reason::Pinned(number));
        }
        self.present[number] = false;
        self.pinned[number] = false;
        self.bytes -= u128::from(storage.bytes);
        if let (Some(arena), Some(offset)) = (&mut self.arena, self.lies[number].take()) {
            arena.give(offset);
        }
        self.frees += 1;
        Ok(())
    }

    fn defined(&self, tensor: usize) -> Result<(), Undefined> {
        let made = self.recording.tensors[tensor];
        let storage = made.storage;
        if !self.present[storage] {
            return Err(Undefined {
                storage,
                view: None,
            });
        }
        match made.made {
            Made::View(op) if self.made[tensor] <= self.came[storage] => Err(Undefined {
                storage,
                view: Some(op),
            }),
            _ => Ok(()),
        }
    }

    /// Whether the recording refers to a storage no more.
    fn is_released(&self, storage: usize) -> bool {
        let released = self.recording.storages[storage].released;
        released.is_some_and(|ops| ops <= self.ran)
    }

    /// Requests that come before the next first run.
    fn requests(&self) -> &'a [Asked] {
        let open = &self.recording.asked[self.met..];
        let until = open.iter().take_while(|asked| asked.before == self.ran);
        &open[..until.count()]
    }

    /// Notes which of the requests before the next first run are met right away.
    fn look_ahead(&mut self) {
        let requests = self.requests();
        let mut seen = std::mem::take(&mut self.seen);
        seen.clear();
        seen.extend(
            requests
                .iter()
                .map(|asked| self.defined(asked.tensor).is_ok()),
        );
        self.seen = seen;
    }

    /// Checks the requests before the next first run, which comes now.
    fn meet_requests(&mut self) -> Result<(), Reason> {
        let requests = self.requests();
        for (index, asked) in requests.iter().enumerate() {
            let defined = self.defined(asked.tensor);
            let storage = self.recording.tensors[asked.tensor].storage;
            let between = self.made[asked.tensor] > self.last_first || self.seen[index];
            match asked.how {
                Ask::Pin if !self.is_released(storage) => {
                    defined.map_err(Reason::PinAsks)?;
                    self.pinned[storage] = true;
                }
                Ask::Pin if !between => defined.map_err(Reason::PinAsks)?,
                Ask::Ensure if !between => defined.map_err(Reason::EnsureAsks)?,
                Ask::Pin | Ask::Ensure => {}
            }
        }
        self.met += requests.len();
        Ok(())
    }
}
