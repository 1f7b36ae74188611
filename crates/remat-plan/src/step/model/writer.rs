//! A step being taken in, event by event.

use super::error::{StepError, Summed};
use super::step::{NONE, Op, OpKind, Step, Storage};
use crate::adjacency::Adjacency;
use remat_trace::{Event, TraceOutput, TraceOutputKind};
use std::collections::HashMap;

/// The device whose memory is planned.
const DEVICE: u8 = 0;
const MOST: usize = 1 << 31;
/// Of sizes and of costs: differences of sums fit into 63 bits.
const LARGEST_SUM: u64 = 1 << 61;

/// A tensor that the recording still refers to.
#[derive(Clone, Copy)]
struct Tensor {
    storage: u32,
    /// The op that made this view, or `NONE`.
    view: u32,
    references: u32,
}

/// The recording's hold on a storage.
#[derive(Clone, Copy, Default)]
struct Noted {
    /// Tensors that the recording refers to.
    referred: u32,
    /// Whether an op wrote into it.
    killed: bool,
    pinned: bool,
}

/// The fate of memory that the recording refers to no more.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Releases {
    /// A plan may hold it, and run ops again that read it.
    #[default]
    Hold,
    /// It is gone, but for what is kept.
    Free(Kept),
}

/// Memory that a program refers to no more and that a plan may hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kept {
    /// None.
    #[default]
    Nothing,
    /// That of results of ops that can run again, as long as nobody pinned them.
    Results,
}

/// A step being taken in.
#[derive(Default)]
pub(super) struct Writer {
    ops: Vec<Op>,
    storages: Vec<Storage>,
    reads: Vec<(u32, u32)>,
    makes: Vec<(u32, u32)>,
    kills: Vec<(u32, u32)>,
    views: Vec<(u32, u32)>,
    tensors: HashMap<u64, Tensor>,
    /// By storage.
    noted: Vec<Noted>,
    numbered: Vec<u32>,
    at_event: Vec<u32>,
    releases: Releases,
    bytes: u64,
    cost: u64,
}

impl Writer {
    pub(super) fn push(&mut self, event: &Event) -> Result<(), &'static str> {
        if !matches!(event, Event::Mark { .. }) {
            self.at_event.push(self.ops.len() as u32);
        }
        match event {
            Event::Constant {
                tensor,
                bytes,
                device,
            } => {
                let op = self.op(0, 0, OpKind::Once);
                let storage = self.storage(op, NONE, *bytes, *device);
                self.storages[storage as usize].constant = true;
                self.hold(*tensor, storage, NONE)
            }
            Event::Op { .. } => self.push_op(event),
            Event::Retain { tensor } => {
                let held = self.held(*tensor)?;
                held.references = held.references.checked_add(1).ok_or("refers too often")?;
                Ok(())
            }
            Event::Release { tensor } => {
                let held = self.held(*tensor)?;
                held.references -= 1;
                if held.references == 0 {
                    let storage = held.storage as usize;
                    self.tensors.remove(tensor);
                    let noted = &mut self.noted[storage];
                    noted.referred -= 1;
                    let Noted {
                        referred,
                        killed,
                        pinned,
                    } = *noted;
                    if pinned && referred == 0 && !killed {
                        self.look(&[(storage as u32, NONE)]);
                    }
                    let goes = match self.releases {
                        Releases::Hold => false,
                        Releases::Free(Kept::Nothing) => !self.storages[storage].constant,
                        Releases::Free(Kept::Results) => {
                            let Storage {
                                constant, producer, ..
                            } = self.storages[storage];
                            let once = self.ops[producer as usize].kind == OpKind::Once;
                            !constant && (once || pinned)
                        }
                    };
                    if referred == 0 && goes {
                        // A later reader is a run again, after one that makes it again.
                        self.kills.push((storage as u32, self.ops.len() as u32 - 1));
                    }
                }
                Ok(())
            }
            Event::Pin { tensor } => {
                let Tensor { storage, view, .. } = *self.held(*tensor)?;
                let op = self.look(&[(storage, view)]);
                let record = &mut self.storages[storage as usize];
                record.frozen_from = op.min(record.frozen_from);
                self.noted[storage as usize].pinned = true;
                Ok(())
            }
            Event::Ensure { tensors } => {
                let mut seen = Vec::with_capacity(tensors.len());
                for &tensor in tensors {
                    let Tensor { storage, view, .. } = *self.held(tensor)?;
                    seen.push((storage, view));
                }
                self.look(&seen);
                Ok(())
            }
            Event::Mark { .. } | Event::Plan(_) => Ok(()),
        }
    }

    /// An op of the recording.
    fn push_op(&mut self, event: &Event) -> Result<(), &'static str> {
        let Event::Op {
            inputs,
            outputs,
            workspace,
            workspace_device,
            cost,
            replay,
            ..
        } = event
        else {
            return Ok(());
        };
        let mut read = Vec::with_capacity(inputs.len());
        for &input in inputs {
            read.push(*self.held(input)?);
        }
        let workspace = if *workspace_device == DEVICE {
            *workspace
        } else {
            0
        };
        self.count(workspace);
        let kind = match self.kind(outputs, &read, *replay) {
            // Views are made where they are read, and take no memory there.
            OpKind::View(_) if workspace > 0 => OpKind::Repeatable,
            kind => kind,
        };
        self.cost = self.cost.saturating_add(*cost);
        let op = self.op(*cost, workspace, kind);
        self.read(op, read.iter().map(|tensor| (tensor.storage, tensor.view)));
        let viewed = |of: usize| read.get(of).ok_or("writes into no input").copied();
        for output in outputs {
            let (storage, view) = match output.kind {
                TraceOutputKind::Fresh { bytes, device } => {
                    (self.storage(op, NONE, bytes, device), NONE)
                }
                TraceOutputKind::Alias { of } => (viewed(of)?.storage, op),
                TraceOutputKind::InPlace { of } => {
                    let old = viewed(of)?.storage;
                    if self
                        .kills
                        .iter()
                        .rev()
                        .take_while(|kill| kill.1 == op)
                        .any(|kill| kill.0 == old)
                    {
                        return Err("writes into a storage twice");
                    }
                    self.kills.push((old, op));
                    self.noted[old as usize].killed = true;
                    (self.storage(op, old, 0, DEVICE), NONE)
                }
            };
            if view != NONE && !matches!(kind, OpKind::View(_)) {
                // No run of this op alone brings the view back.
                let frozen = &mut self.storages[storage as usize].frozen_from;
                *frozen = op.min(*frozen);
            }
            self.hold(output.tensor, storage, view)?;
        }
        Ok(())
    }

    fn kind(&self, outputs: &[TraceOutput], read: &[Tensor], replay: bool) -> OpKind {
        let viewed = |output: &TraceOutput| match output.kind {
            TraceOutputKind::Alias { of } => read.get(of).map(|tensor| tensor.storage),
            _ => None,
        };
        let of = outputs.first().and_then(viewed);
        match of {
            _ if !replay => OpKind::Once,
            Some(of)
                if outputs.iter().all(|output| viewed(output) == Some(of))
                    && read.iter().all(|tensor| {
                        tensor.storage == of || self.storages[tensor.storage as usize].constant
                    }) =>
            {
                OpKind::View(of)
            }
            _ => OpKind::Repeatable,
        }
    }

    /// An op that only reads.
    fn look(&mut self, tensors: &[(u32, u32)]) -> u32 {
        let op = self.ops.len() as u32;
        self.ops.push(Op {
            number: NONE,
            cost: 0,
            workspace: 0,
            kind: OpKind::Once,
            until: NONE,
        });
        self.read(op, tensors.iter().copied());
        op
    }

    fn op(&mut self, cost: u64, workspace: u64, kind: OpKind) -> u32 {
        self.ops.push(Op {
            number: self.numbered.len() as u32,
            cost,
            workspace,
            kind,
            until: NONE,
        });
        let op = self.ops.len() as u32 - 1;
        self.numbered.push(op);
        op
    }

    fn read(&mut self, op: u32, tensors: impl Iterator<Item = (u32, u32)>) {
        let (reads, views) = (self.reads.len(), self.views.len());
        for (storage, view) in tensors {
            self.reads.push((op, storage));
            if view != NONE {
                self.views.push((op, view));
            }
        }
        dedup_from(&mut self.reads, reads);
        dedup_from(&mut self.views, views);
    }

    fn storage(&mut self, producer: u32, block_of: u32, bytes: u64, device: u8) -> u32 {
        let bytes = match block_of {
            NONE if device == DEVICE => bytes,
            NONE => 0,
            old => self.storages[old as usize].bytes,
        };
        self.count(bytes);
        let storage = self.storages.len() as u32;
        self.makes.push((producer, storage));
        self.storages.push(Storage {
            bytes,
            producer,
            block_of,
            frozen_from: NONE,
            constant: false,
        });
        self.noted.push(Noted::default());
        storage
    }

    /// Counts bytes that are asked for.
    fn count(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Compares the step with the limits of planning. Those of sums are below those of traces.
    fn check_limits(&self) -> Result<(), StepError> {
        if self.ops.len() >= MOST || self.storages.len() >= MOST {
            return Err(StepError::TooLarge);
        }
        for (summed, sum) in [(Summed::Sizes, self.bytes), (Summed::Costs, self.cost)] {
            if sum > LARGEST_SUM {
                return Err(StepError::SumTooLarge { summed, sum });
            }
        }
        Ok(())
    }

    fn hold(&mut self, tensor: u64, storage: u32, view: u32) -> Result<(), &'static str> {
        let held = Tensor {
            storage,
            view,
            references: 1,
        };
        self.noted[storage as usize].referred += 1;
        match self.tensors.insert(tensor, held) {
            None => Ok(()),
            Some(_) => Err("makes a tensor that is there"),
        }
    }

    fn held(&mut self, tensor: u64) -> Result<&mut Tensor, &'static str> {
        let held = self.tensors.get_mut(&tensor);
        held.ok_or("names a tensor that is not there")
    }

    pub(super) fn finish(mut self) -> Result<Step, StepError> {
        let mut left: Vec<(u32, u32)> = (self.tensors.values())
            .map(|tensor| (tensor.storage, tensor.view))
            .collect();
        left.sort_unstable();
        self.look(&left);
        self.check_limits()?;
        for &(storage, _) in &self.kills {
            self.storages[storage as usize].constant = false;
        }
        let storages = &self.storages;
        let ops = self.ops.len();
        self.reads
            .retain(|&(_, storage)| !storages[storage as usize].constant);
        let turned = |pairs: &[(u32, u32)]| pairs.iter().map(|&(a, b)| (b, a)).collect::<Vec<_>>();
        let readers = turned(&self.reads);
        let mut step = Step {
            reads: Adjacency::new(ops, self.reads.iter().copied()),
            makes: Adjacency::new(ops, self.makes.iter().copied()),
            readers: Adjacency::new(storages.len(), readers.iter().copied()),
            kills: Adjacency::new(storages.len(), self.kills.iter().copied()),
            views: Adjacency::new(ops, self.views.iter().copied()),
            constants: Vec::new(),
            cost: self.cost,
            at_event: self.at_event,
            numbered: self.numbered,
            ops: self.ops,
            storages: self.storages,
        };
        step.count_constants();
        step.limit_reruns();
        Ok(step)
    }
}

impl Step {
    /// Takes in the events of a recorded step. Memory is that of device 0.
    ///
    /// Everything that is still referenced after the last event must be there at the end.
    ///
    /// ```
    /// use remat_plan::step::Step;
    /// use remat_trace::{Event, TraceOutput, TraceOutputKind};
    ///
    /// let fresh = |tensor, bytes| TraceOutput { tensor, kind: TraceOutputKind::Fresh { bytes, device: 0 } };
    /// let events = [
    ///     Event::Constant { tensor: 0, bytes: 100, device: 0 },
    ///     Event::Op {
    ///         name: "exp".into(), inputs: vec![0], outputs: vec![fresh(1, 100)],
    ///         workspace: 0, workspace_device: 0, cost: 7, replay: true,
    ///     },
    /// ];
    /// let step = Step::from_events(&events)?;
    /// assert_eq!((step.cost_ns(), step.peak_bytes()), (7, 200));
    /// # Ok::<(), remat_plan::step::StepError>(())
    /// ```
    ///
    /// # Errors
    /// [`StepError::Event`], [`StepError::TooLarge`] and [`StepError::SumTooLarge`].
    pub fn from_events<'a>(events: impl IntoIterator<Item = &'a Event>) -> Result<Step, StepError> {
        Step::written(Writer::default(), events)
    }

    /// [`from_events`](Step::from_events) of a program that frees what it refers to no more, but for what is kept: who
    /// needs such a storage later has it made again. Constants stay.
    ///
    /// # Errors
    /// As [`from_events`](Step::from_events).
    pub fn from_program<'a>(
        events: impl IntoIterator<Item = &'a Event>,
        kept: Kept,
    ) -> Result<Step, StepError> {
        let writer = Writer {
            releases: Releases::Free(kept),
            ..Writer::default()
        };
        Step::written(writer, events)
    }

    fn written<'a>(
        mut writer: Writer,
        events: impl IntoIterator<Item = &'a Event>,
    ) -> Result<Step, StepError> {
        for (index, event) in events.into_iter().enumerate() {
            writer.push(event).map_err(|fault| StepError::Event {
                event: index,
                fault,
            })?;
        }
        writer.finish()
    }

    fn count_constants(&mut self) {
        let mut bytes = vec![0u64; self.ops.len() + 1];
        for storage in self.storages.iter().filter(|storage| storage.constant) {
            bytes[storage.producer as usize] += storage.bytes;
        }
        let mut sum = 0;
        for bytes in &mut bytes {
            sum += *bytes;
            *bytes = sum;
        }
        self.constants = bytes;
    }

    /// An op can run again as long as each storage that it reads can be there: until the op that writes into it, or as
    /// long as its own producer can run again.
    fn limit_reruns(&mut self) {
        let mut available = vec![NONE; self.storages.len()];
        for op in 0..self.ops.len() {
            let read = self.reads.of(op).iter();
            let until = read.map(|&storage| available[storage as usize]).min();
            self.ops[op].until = match self.ops[op].kind {
                OpKind::Once => 0,
                _ => until.unwrap_or(NONE),
            };
            for &storage in self.makes.of(op) {
                let killed = self.kills.of(storage as usize).first();
                let frozen = self.storages[storage as usize].frozen_from != NONE;
                available[storage as usize] = match killed {
                    None => NONE,
                    Some(&killer) if frozen => killer,
                    Some(&killer) => killer.max(self.ops[op].until),
                };
            }
        }
    }
}

/// Sorts what was appended, and leaves each once.
fn dedup_from(pairs: &mut Vec<(u32, u32)>, from: usize) {
    pairs[from..].sort_unstable();
    let mut kept = from;
    for next in from..pairs.len() {
        if kept == from || pairs[kept - 1] != pairs[next] {
            pairs[kept] = pairs[next];
            kept += 1;
        }
    }
    pairs.truncate(kept);
}
