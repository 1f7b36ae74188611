//! An op on its way through the session: prepared, announced, run.

use pyo3::prelude::*;
use remat_core::{Bytes, OpId, Output, Replay, TensorId};

use super::stats::Unseen;
use crate::call::arguments::Walk;
use crate::call::global_state::StateNumber;
use crate::call::record::GradMode;
use crate::call::signature::{Predicted, Signature};

/// A call that is ready to be announced.
pub(super) struct Prepared {
    pub(super) walked: Walk,
    pub(super) signature: Signature,
    /// Bytes that are kept for it beyond inputs and outputs.
    pub(super) room: Bytes,
    pub(super) grad: GradMode,
    /// The settings of process and thread under which it runs.
    pub(super) state: StateNumber,
    /// Whether the op and its arguments allow a replay.
    pub(super) replay: Replay,
    /// The use of running statistics that its run will show, if it is not known.
    pub(super) unseen: Option<Unseen>,
    /// Whether the sizes of its results depend on data.
    pub(super) data_dependent: bool,
}

/// The outputs of an op, as they are announced to the engine: in-place ones first, then the fresh ones in the order of
/// the results.
pub(super) struct Announced {
    pub(super) outputs: Vec<Output>,
    /// For each flattened result the index into `outputs`, if it has a storage of its own.
    pub(super) results: Vec<Option<u32>>,
}

impl Announced {
    /// No outputs: whatever a call returns becomes constants.
    pub(super) fn nothing() -> Announced {
        Announced {
            outputs: Vec::new(),
            results: Vec::new(),
        }
    }

    /// The outputs that a call with this signature is expected to have.
    pub(super) fn of(walked: &Walk, signature: &Signature) -> Announced {
        let mut outputs: Vec<Output> =
            Vec::with_capacity(walked.written.len() + signature.outputs.len());
        let written = walked.written.iter();
        outputs.extend(written.map(|&of| Output::InPlace { of: of as usize }));
        let mut results = Vec::with_capacity(signature.outputs.len());
        for predicted in &signature.outputs {
            results.push(match *predicted {
                Predicted::Fresh { bytes, device } => {
                    outputs.push(Output::Fresh { bytes, device });
                    Some((outputs.len() - 1) as u32)
                }
                Predicted::Shared => None,
            });
        }
        Announced { outputs, results }
    }

    /// Takes outputs that the op did not return out of its results: no replay returns them either.
    pub(super) fn forget(&mut self, missing: &[usize]) {
        for result in &mut self.results {
            if result.is_some_and(|k| missing.contains(&(k as usize))) {
                *result = None;
            }
        }
    }

    /// The sizes of the outputs, as they are announced.
    pub(super) fn sizes(&self) -> Vec<Bytes> {
        sizes_of(&self.outputs).collect()
    }
}

/// The sizes of outputs, as they are announced.
pub(super) fn sizes_of(outputs: &[Output]) -> impl Iterator<Item = Bytes> + '_ {
    outputs.iter().map(|output| match output {
        Output::Fresh { bytes, .. } => *bytes,
        _ => Bytes(0),
    })
}

/// An op that ran, before the engine is told so.
pub(super) struct Ran<'py> {
    pub(super) op: OpId,
    /// The tensors that the engine made for its outputs.
    pub(super) made: Vec<TensorId>,
    pub(super) result: Bound<'py, PyAny>,
    /// Whether it may be replayed.
    pub(super) replay: Replay,
    /// In nanoseconds.
    pub(super) cost: u64,
    /// State of the random generators before it.
    pub(super) rng: Option<Py<PyAny>>,
}
