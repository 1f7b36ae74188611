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

/// Calls that are timed before anything is made of the cost of a signature.
pub const SAMPLES: u32 = 3;

/// Whether the next call is to be timed, after so many: each of the first few, and then those whose numbers are powers
/// of two. Single times on a busy machine are too long, and none is too short, so the least of them gets better.
pub fn is_due(calls: u32) -> bool {
    calls < SAMPLES || calls.saturating_add(1).is_power_of_two()
}

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
    /// Whether `workspace` holds the temporaries side by side, beside the places of the results: so it was measured in
    /// an arena. Outside of one, results that do not exist yet leave their bytes to temporaries.
    pub spans: bool,
    /// Calls so far, but for the one that measured the workspace.
    pub calls: u32,
    /// Smallest time of these, in nanoseconds; before the first of them, that of the call that measured the workspace.
    pub cost: u64,
}

impl Signature {
    /// Bytes that a call needs beyond inputs and outputs.
    pub fn room(&self) -> Bytes {
        Bytes(self.workspace.0 + self.leaves.0)
    }

    /// Bytes of the results that a call allocates, and those that it needs beside them.
    pub fn taken(&self) -> u64 {
        let made = self.outputs.iter().map(|output| match *output {
            Predicted::Fresh { bytes, .. } => bytes.0,
            Predicted::Shared => 0,
        });
        made.fold(self.room().0, u64::saturating_add)
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

    /// Counts a call, and takes into account how long it took if it was timed.
    pub fn count(&mut self, nanoseconds: Option<u64>) {
        if let Some(nanoseconds) = nanoseconds {
            self.cost = match self.calls {
                0 => nanoseconds,
                _ => self.cost.min(nanoseconds),
            };
        }
        self.calls = self.calls.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::is_due;

    #[test]
    fn calls_are_timed_ever_more_rarely() {
        let due: Vec<u32> = (0..100).filter(|&calls| is_due(calls)).collect();
        assert_eq!(due, [0, 1, 2, 3, 7, 15, 31, 63]);
        assert!(!is_due(u32::MAX), "and the count goes no further");
    }
}
