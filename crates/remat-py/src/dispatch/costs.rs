//! The report on an op that ran, and the costs by which the engine weighs evictions.

use remat_core::{Bytes, Engine, OpId, Output, Replay, TensorId};

use crate::call::signature::Signature;

/// Nanoseconds that an op takes beside its bytes, where costs are reckoned.
const CALL: u64 = 1_000;

/// Bytes that an op reads or writes in a nanosecond, where costs are reckoned.
const BYTES_PER_NANOSECOND: u64 = 8;

/// A call that ran, as the engine and the trace are told of it.
pub(super) struct Completed<'a> {
    pub(super) op: OpId,
    pub(super) inputs: &'a [TensorId],
    pub(super) outputs: &'a [Output],
    /// The tensors that the engine made for its outputs.
    pub(super) made: &'a [TensorId],
    pub(super) signature: &'a Signature,
    /// Bytes that were kept for it beyond inputs and outputs before it ran, where they may be more than the signature
    /// says now.
    pub(super) announced: Option<Bytes>,
    /// Whether it may be replayed.
    pub(super) replay: Replay,
    /// In nanoseconds.
    pub(super) cost: u64,
    /// True sizes of the outputs; `None` where they are those announced.
    pub(super) sizes: Option<&'a [Bytes]>,
}

/// The origin of an op's cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Costs {
    /// Its time, as measured.
    Measured,
    /// The bytes of its arguments and results. Two runs of a program then decide alike, whatever else the machine does.
    OfBytes,
}

impl Costs {
    /// The cost of an op that ran, in nanoseconds.
    pub(super) fn of(self, engine: &Engine, completed: &Completed<'_>) -> u64 {
        match self {
            Costs::Measured => completed.cost,
            Costs::OfBytes => reckoned(bytes(engine, completed)),
        }
    }

    /// The cost of an op of a form that takes so many nanoseconds, and reads and makes so many bytes.
    pub(super) fn of_form(self, nanoseconds: u64, bytes: u64) -> u64 {
        match self {
            Costs::Measured => nanoseconds,
            Costs::OfBytes => reckoned(bytes),
        }
    }
}

fn reckoned(bytes: u64) -> u64 {
    CALL + bytes / BYTES_PER_NANOSECOND
}

/// The bytes of an op's arguments, and of the results that it allocated.
fn bytes(engine: &Engine, completed: &Completed<'_>) -> u64 {
    let storages = completed.inputs.iter().filter_map(|&t| engine.storage(t));
    let read: u64 = storages.map(|storage| engine.bytes(storage).0).sum();
    let announced = |output: &Output| match output {
        Output::Fresh { bytes, .. } => bytes.0,
        _ => 0,
    };
    let written: u64 = match completed.sizes {
        Some(sizes) => sizes.iter().map(|size| size.0).sum(),
        None => completed.outputs.iter().map(announced).sum(),
    };
    read + written
}
