//! One step that repeats, written down for a planner.

use super::places::Origin;
use super::plan::{StepCosts, hash};
use super::repeats::Period;
use super::signature::OriginsAt;
use crate::graph::{Graph, NOWHERE};
use crate::ids::{Bytes, Cost, DeviceId, OpId, StorageId, TensorId};
use crate::op::{Finished, OpSpec, Output, Replay};

/// A step that came twice, as the engine was told of it the third time.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recorded {
    /// All that the engine was told, in order. Tensors are numbered as they come.
    pub events: Vec<Told>,
    /// Of each op the signature, by which it is known again.
    pub signatures: Vec<u64>,
    /// The ops that were replayed, by their places in the step, each with the op before which that happened.
    pub replays: Vec<(u32, u32)>,
    /// Cost of the replays in the step before.
    pub replayed: Cost,
    /// The device whose memory matters.
    pub device: DeviceId,
}

impl Recorded {
    /// The time of the step, as the engine ran it.
    pub fn costs(&self) -> StepCosts {
        StepCosts {
            first: self.cost(),
            replayed: self.replayed,
        }
    }

    /// Time of all ops, each once.
    pub fn cost(&self) -> Cost {
        let costs = self.events.iter().map(|event| match event {
            Told::Op { cost, .. } => cost.0,
            _ => 0,
        });
        Cost(costs.fold(0, u64::saturating_add))
    }
}

/// One thing that the engine was told in a step.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Told {
    /// A storage that was there when the step began, or that was made without an op; its tensors share one number.
    There {
        /// The tensor.
        tensor: u64,
        /// Its size.
        bytes: Bytes,
        /// Where it lies.
        device: DeviceId,
        /// References to it, 1 or more.
        references: u32,
        /// Whether it is a constant.
        pinned: bool,
        /// Where it comes from; `None` for one that was made amid the step.
        origin: Option<Origin>,
        /// Where it lies.
        lies: Lies,
        /// Whether it cannot be moved from there.
        fixed: bool,
    },
    /// An op ran for the first time.
    Op {
        /// Tensors that it read.
        inputs: Vec<u64>,
        /// Tensors that it made.
        outputs: Vec<ToldOutput>,
        /// Bytes beside those.
        workspace: Bytes,
        /// Where the workspace was.
        workspace_device: DeviceId,
        /// The time that it took.
        cost: Cost,
        /// Whether it may be replayed.
        replay: Replay,
    },
    /// One more reference.
    Retain(u64),
    /// One reference less.
    Release(u64),
    /// The tensor stays from now on.
    Pin(u64),
    /// The tensors were read outside of ops.
    Ensure(Vec<u64>),
}

/// Where a storage lies when a step begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lies {
    /// At an address of its device's arena.
    At(u64),
    /// In memory, and in no arena.
    Elsewhere,
    /// It is evicted.
    Nowhere,
}

/// A tensor that an op made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToldOutput {
    /// The tensor.
    pub tensor: u64,
    /// The storage that it views. Sizes are true ones.
    pub output: Output,
}

/// A recording under way.
pub(super) struct Recorder {
    recorded: Recorded,
    /// The number of the first op, among all that were announced.
    first: u64,
    /// Ops announced so far.
    announced: usize,
    /// The number of each tensor, by its id, or `u64::MAX`.
    numbers: Vec<u64>,
    next: u64,
    /// Ops that run now, with their events.
    open: Vec<(OpId, usize)>,
}

/// The recording is of another step than the one expected, or of one that cannot be told of.
pub(super) struct Departed;

impl Recorder {
    /// A recording of the step with these ops, which starts with what the engine holds.
    pub(super) fn new(
        graph: &Graph,
        device: DeviceId,
        signatures: Vec<u64>,
        replayed: Cost,
        at: OriginsAt<'_>,
    ) -> Recorder {
        let mut recorder = Recorder {
            recorded: Recorded {
                events: Vec::new(),
                signatures,
                replays: Vec::new(),
                replayed,
                device,
            },
            first: at.first,
            announced: 0,
            numbers: vec![u64::MAX; graph.tensors.len()],
            next: 0,
            open: Vec::new(),
        };
        for (s, storage) in (0..).map(StorageId).zip(&graph.storages) {
            if !storage.used || (storage.refs == 0 && !storage.pinned) {
                continue;
            }
            let tensor = recorder.number();
            for view in &storage.views {
                recorder.numbers[view.index()] = tensor;
            }
            recorder.recorded.events.push(Told::There {
                tensor,
                bytes: Bytes(storage.bytes),
                device: DeviceId(storage.device),
                references: storage.refs.max(1),
                pinned: storage.pinned,
                origin: Some(at.of(graph, s)),
                lies: match storage.address {
                    NOWHERE if storage.resident => Lies::Elsewhere,
                    NOWHERE => Lies::Nowhere,
                    address => Lies::At(address),
                },
                fixed: storage.fixed,
            });
        }
        recorder
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    fn set(&mut self, tensor: TensorId) -> u64 {
        let number = self.number();
        if self.numbers.len() <= tensor.index() {
            self.numbers.resize(tensor.index() + 1, u64::MAX);
        }
        self.numbers[tensor.index()] = number;
        number
    }

    fn of(&self, tensor: TensorId) -> Result<u64, Departed> {
        let number = self.numbers.get(tensor.index()).copied();
        number.filter(|&number| number != u64::MAX).ok_or(Departed)
    }

    /// A hash of the step's ops.
    pub(super) fn hash(&self) -> u64 {
        hash(&self.recorded.signatures)
    }

    /// How many ops the step has.
    pub(super) fn ops(&self) -> u64 {
        self.recorded.signatures.len() as u64
    }

    /// Whether all ops of the step were announced.
    pub(super) fn is_whole(&self) -> bool {
        self.announced == self.recorded.signatures.len()
    }

    /// The recording, if all of its ops ran.
    pub(super) fn finish(self) -> Option<Recorded> {
        (self.is_whole() && self.open.is_empty()).then_some(self.recorded)
    }

    /// An op was announced.
    pub(super) fn begun(
        &mut self,
        op: OpId,
        made: &[TensorId],
        spec: &OpSpec<'_>,
        signature: u64,
    ) -> Result<(), Departed> {
        if self.recorded.signatures.get(self.announced) != Some(&signature) {
            return Err(Departed);
        }
        self.announced += 1;
        let inputs = spec.inputs.iter().map(|&input| self.of(input));
        let inputs = inputs.collect::<Result<_, _>>()?;
        let mut outputs = Vec::with_capacity(made.len());
        for (&tensor, &output) in made.iter().zip(spec.outputs) {
            let tensor = self.set(tensor);
            outputs.push(ToldOutput { tensor, output });
        }
        self.open.push((op, self.recorded.events.len()));
        self.recorded.events.push(Told::Op {
            inputs,
            outputs,
            workspace: spec.workspace,
            workspace_device: spec.workspace_device,
            cost: Cost(0),
            replay: spec.replay,
        });
        Ok(())
    }

    /// Whether the step's first op was announced, and no other.
    pub(super) fn is_at_first(&self) -> bool {
        self.announced == 1
    }

    /// The step, which is to be recorded from the op on that is announced next.
    pub(super) fn into_period(self) -> Period {
        Period {
            hash: self.hash(),
            ahead: 0,
            replayed: self.recorded.replayed.0,
            signatures: self.recorded.signatures,
        }
    }

    /// The op that was announced last did not run.
    pub(super) fn take_back(&mut self, op: OpId) -> Result<(), Departed> {
        let last = self.recorded.events.len().checked_sub(1);
        let open = self.open.pop().ok_or(Departed)?;
        if Some(open) != last.map(|last| (op, last)) {
            return Err(Departed);
        }
        self.announced -= 1;
        if let Some(Told::Op { outputs, .. }) = self.recorded.events.pop() {
            self.next -= outputs.len() as u64;
        }
        Ok(())
    }

    /// The op of this number is replayed, before the one that is announced next.
    pub(super) fn replayed(&mut self, number: u64) {
        if let Some(place) = number.checked_sub(self.first) {
            let before = self.announced as u32;
            self.recorded.replays.push((place as u32, before));
        }
    }

    /// An op ran.
    pub(super) fn finished(&mut self, op: OpId, report: &Finished<'_>) {
        let Some(place) = self.open.iter().position(|open| open.0 == op) else {
            return;
        };
        let (_, event) = self.open.swap_remove(place);
        if let Told::Op { outputs, cost, .. } = &mut self.recorded.events[event] {
            *cost = report.cost;
            for (made, &true_bytes) in outputs.iter_mut().zip(report.bytes.unwrap_or_default()) {
                if let Output::Fresh { bytes, .. } = &mut made.output {
                    *bytes = true_bytes;
                }
            }
        }
    }

    /// A storage was made without an op.
    pub(super) fn constant(&mut self, tensor: TensorId, bytes: Bytes, device: DeviceId) {
        let tensor = self.set(tensor);
        self.recorded.events.push(Told::There {
            tensor,
            bytes,
            device,
            references: 1,
            pinned: true,
            origin: None,
            lies: Lies::Elsewhere,
            fixed: false,
        });
    }

    /// Something happened to a tensor.
    pub(super) fn told(
        &mut self,
        event: fn(u64) -> Told,
        tensor: TensorId,
    ) -> Result<(), Departed> {
        let event = event(self.of(tensor)?);
        self.recorded.events.push(event);
        Ok(())
    }

    pub(super) fn ensured(&mut self, tensors: &[TensorId]) -> Result<(), Departed> {
        let tensors = tensors.iter().map(|&tensor| self.of(tensor));
        let event = Told::Ensure(tensors.collect::<Result<_, _>>()?);
        self.recorded.events.push(event);
        Ok(())
    }
}
