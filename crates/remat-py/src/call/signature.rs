//! A call's output sizes, workspace and cost, known by its signature before it runs.
//!
//! A signature is the op and everything about its arguments that can change a size: shapes, strides and dtypes
//! of tensors, integers, flags. The values of floats and of `Scalar` arguments are no part of it, so a learning rate
//! that changes every step makes one signature.

use remat_core::{Bytes, DeviceId};

/// One output of a call, in the order in which the results are flattened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Predicted {
    /// A storage of its own.
    Fresh {
        /// Size of the storage; an upper bound where the size depends on data.
        bytes: Bytes,
        /// The device that holds it.
        device: DeviceId,
    },
    /// A view of an argument, or nothing.
    Shared,
}

/// Timed runs after which the cost of a signature is frozen.
pub const SAMPLES: u8 = 3;

/// The knowledge of one signature.
#[derive(Clone, Debug)]
pub struct Signature {
    /// The results of a call.
    pub outputs: Vec<Predicted>,
    /// Bytes needed while a call runs, beyond inputs and outputs.
    pub workspace: Bytes,
    /// Bytes that a call leaves behind beside its outputs: those by which an `out=` grew, those of a sparse result's
    /// parts.
    pub leaves: Bytes,
    /// Whether `leaves` was measured; until then it is a safe estimate.
    pub left: bool,
    /// The device of the workspace.
    pub workspace_device: DeviceId,
    /// Whether `workspace` was measured; until then it is a safe estimate.
    pub measured: bool,
    /// Timed runs so far.
    pub samples: u8,
    /// Smallest time seen, in nanoseconds; frozen after [`SAMPLES`] runs, so that decisions do not wander.
    pub cost: u64,
}

impl Signature {
    /// Bytes that a call needs beyond inputs and outputs.
    pub fn room(&self) -> Bytes {
        Bytes(self.workspace.0 + self.leaves.0)
    }

    /// Takes into account how many bytes a call left behind.
    pub fn leave(&mut self, bytes: u64) {
        self.leaves = if self.left {
            self.leaves.max(Bytes(bytes))
        } else {
            Bytes(bytes)
        };
        self.left = true;
    }

    /// Takes in the true size of an output: shape functions are sometimes wrong (oneDNN's recurrent layers).
    pub fn learn(&mut self, index: usize, size: Bytes) {
        if let Some(Predicted::Fresh { bytes, .. }) = self.outputs.get_mut(index) {
            *bytes = size;
        }
    }

    /// Takes in an output with a storage of its own that the prediction did not foresee.
    pub fn discover(&mut self, index: usize, bytes: Bytes, device: DeviceId) {
        if self.outputs.len() <= index {
            self.outputs.resize(index + 1, Predicted::Shared);
        }
        self.outputs[index] = Predicted::Fresh { bytes, device };
    }

    /// Takes a timing into account, unless the cost is frozen.
    pub fn sample(&mut self, nanoseconds: u64) {
        if self.samples < SAMPLES {
            self.cost = if self.samples == 0 {
                nanoseconds
            } else {
                self.cost.min(nanoseconds)
            };
            self.samples += 1;
        }
    }
}
