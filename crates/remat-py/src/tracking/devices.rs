//! Devices with memory of their own. A device's place in the session's list is its id in the engine.

use pyo3::prelude::*;
use remat_core::DeviceId;

/// The device whose tensors lie in the arena: the CPU, whose budget is the first.
pub const PLACED: DeviceId = DeviceId(0);

/// A device with memory of its own.
pub struct Device {
    /// Its name, as torch writes it (`cpu`, `cuda:0`).
    pub name: String,
    /// `torch.device`.
    pub device: Py<PyAny>,
}

/// The device of a single budget that was given without a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// The one it was given for.
    Fixed,
    /// The CPU until the program uses an accelerator, then that.
    Accelerator,
}
