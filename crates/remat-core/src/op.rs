//! Ops as a front end announces and reports them, and the steps that the engine asks it to perform.

use crate::ids::{Bytes, Cost, DeviceId, OpId, StorageId, TensorId};

/// The storage that an output of an op views.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// A storage of its own, of so many bytes (an upper bound until [`Engine::finish`](crate::Engine::finish)), in a
    /// device.
    Fresh {
        /// Size of the new storage.
        bytes: Bytes,
        /// Device memory that it lives in.
        device: DeviceId,
    },
    /// A view of the storage of the input at this index (size 0).
    Alias {
        /// Index into the op's inputs.
        of: usize,
    },
    /// A new value written into the block of the input at this index: the old value counts as evicted,
    /// no byte is added ("recomputable in-place", Coop section 3.3).
    InPlace {
        /// Index into the op's inputs.
        of: usize,
    },
}

/// An op about to run for the first time.
#[derive(Clone, Copy, Debug)]
pub struct OpSpec<'a> {
    /// Tensors it reads; repeated ones are allowed.
    pub inputs: &'a [TensorId],
    /// Tensors it makes.
    pub outputs: &'a [Output],
    /// Bytes that the op needs while it runs, beyond inputs and outputs.
    pub workspace: Bytes,
    /// The device that the workspace is taken from.
    pub workspace_device: DeviceId,
    /// Whether the engine may replay it.
    pub replay: Replay,
}

impl OpSpec<'_> {
    /// The inputs that it overwrites.
    pub(crate) fn overwritten(&self) -> impl Iterator<Item = TensorId> + '_ {
        self.outputs.iter().filter_map(|output| match *output {
            Output::InPlace { of } => Some(self.inputs[of]),
            Output::Fresh { .. } | Output::Alias { .. } => None,
        })
    }
}

/// Knowledge of an op before it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// The time it will take, 0 if that is not known.
    pub cost: Cost,
    /// How its cost grows with its size.
    pub kind: Kind,
}

impl From<Cost> for Expected {
    fn from(cost: Cost) -> Self {
        Expected {
            cost,
            kind: Kind::Unknown,
        }
    }
}

/// How the cost of an op grows with the bytes that it makes (Coop section 3.4, table 1); decides where its outputs are
/// placed in an arena.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Not known: its cost over its bytes is compared with that of all ops so far.
    #[default]
    Unknown,
    /// More than linear in its size: products of matrices, convolutions, attention.
    Expensive,
    /// Linear in its size or less: element by element, normalizations, reductions, views.
    Cheap,
}

/// Whether an op can be run again with the same result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replay {
    /// A pure function of its inputs.
    Allowed,
    /// Its outputs are constants: pinned from the start.
    Forbidden,
}

/// One thing for the front end to perform, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Free the bytes of this storage (a no-op for the front end when they are free already).
    Evict(StorageId),
    /// Run the op again. Outputs whose storages hold bytes already are dropped; the others are installed.
    Recompute {
        /// The op to run.
        op: OpId,
        /// The fate of inputs that the op writes into.
        mutation: Mutation,
    },
    /// Copy the storage's bytes to another address of its arena, and free those where they were.
    Move {
        /// Whose bytes.
        storage: StorageId,
        /// Where they are from now on, from the arena's begin.
        address: u64,
    },
}

/// How a replay treats the inputs that its op writes into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// The op writes into the inputs' own blocks, which become the outputs'.
    Consume,
    /// The inputs are still needed: the op writes into copies.
    Copy,
}

/// A report that an op ran.
#[derive(Clone, Copy, Debug)]
pub struct Finished<'a> {
    /// Time it took; what each replay is charged from now on.
    pub cost: Cost,
    /// True sizes of the `Fresh` outputs, one entry an output (ignored for the others); `None`: as announced.
    pub bytes: Option<&'a [Bytes]>,
}
