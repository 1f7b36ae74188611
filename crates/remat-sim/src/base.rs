//! A step's run without a limit.

use crate::Program;
use crate::drive::{self, Unsound};
use remat_core::{Bytes, Cost, Dealloc, DeviceId, Policy, ThrashLimit};

/// The step without a limit, under banishing (DTR appendix C.5). Ratios, overheads and thrash limits refer to this run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Base {
    /// Peak memory of device 0.
    pub memory: Bytes,
    /// Cost of all ops, in nanoseconds.
    pub cost: Cost,
    /// Bytes of all constants together.
    pub constants: Bytes,
    /// The most bytes that a single op needs; see [`Program::bottleneck`].
    pub bottleneck: Bytes,
}

impl Program {
    /// Replays the step without a limit, under [`Dealloc::Banish`].
    ///
    /// # Errors
    /// [`Unsound`] if the events contradict one another.
    pub fn base(&self) -> Result<Base, Unsound> {
        let config = drive::config(Policy::LRU, Dealloc::Banish, None, ThrashLimit::Never, 0);
        let (engine, stopped) = drive::replay(self.recorded(), config)?;
        if let Some((event, error)) = stopped {
            return Err(Unsound { event, error });
        }
        Ok(Base {
            memory: engine.peak(DeviceId(0)),
            cost: engine.counters().first_cost,
            constants: self.constant_bytes(),
            bottleneck: self.bottleneck(),
        })
    }
}
