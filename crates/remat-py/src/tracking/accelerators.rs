//! Devices that work beside the processor: their clocks, the statistics of their allocators, and their streams.

use pyo3::prelude::*;
use remat_core::DeviceId;

/// A device that works beside the processor.
pub struct Accelerator {
    /// Its id in the engine.
    pub id: DeviceId,
    /// `clock() -> stop`, `stop() -> int`: nanoseconds of the device's time.
    pub clock: Py<PyAny>,
    /// `allocated() -> int`: bytes of the blocks that its allocator gave out. `None` for one without statistics.
    pub allocated: Option<Py<PyAny>>,
    /// Bytes kept for blocks of others than the session's storages, and for what these are larger than asked for.
    pub beside: u64,
    /// Bytes of such blocks before the last op.
    pub seen: Option<u64>,
    /// The most by which they grew from one op to the next, of late.
    pub rise: u64,
    /// Whether a replay was given up because blocks grew further than that.
    pub short: bool,
}

/// The accelerators of a session.
pub struct Accelerators {
    /// `clock_of(device)`; `None` for the processor itself.
    clock_of: Py<PyAny>,
    /// `statistics_of(device)`; `None` for allocators without statistics.
    statistics_of: Py<PyAny>,
    /// The streams of all of them.
    pub streams: Py<PyAny>,
    /// `current_index() -> int`: the accelerator's current device.
    pub current_index: Option<Py<PyAny>>,
    /// Devices of the session that were looked at.
    pub met: usize,
    /// Whether the steps under way are those of a plan that can be made anew where blocks are larger than foreseen.
    pub checking: bool,
    /// Those that were met.
    pub here: Vec<Accelerator>,
}

impl Accelerators {
    /// Looks the functions up in the Python module `torch_internals`. No device is known yet.
    ///
    /// # Errors
    /// `AttributeError` for a function that the module lacks.
    pub fn of(module: &Bound<'_, PyAny>) -> PyResult<Accelerators> {
        let here = module.call_method0("accelerator_here")?;
        let current_index = module.getattr("current_index")?.unbind();
        Ok(Accelerators {
            clock_of: module.getattr("clock_of")?.unbind(),
            statistics_of: module.getattr("statistics_of")?.unbind(),
            streams: module.call_method0("Streams")?.unbind(),
            current_index: (!here.is_none()).then_some(current_index),
            met: 0,
            checking: false,
            here: Vec::new(),
        })
    }

    /// A device, if it is one of them.
    pub fn find(&self, id: DeviceId) -> Option<&Accelerator> {
        self.here.iter().find(|accelerator| accelerator.id == id)
    }

    /// Leaves all accelerators alone from here on: the child of a fork cannot use them.
    pub fn leave(&mut self) {
        self.here.clear();
        self.current_index = None;
        self.met = usize::MAX;
    }

    /// Takes in a device of the session, unless it is the processor itself.
    ///
    /// # Errors
    /// An error of Python's.
    pub fn meet(&mut self, device: &Bound<'_, PyAny>, id: DeviceId) -> PyResult<()> {
        let py = device.py();
        let clock = self.clock_of.bind(py).call1((device,))?;
        if clock.is_none() {
            return Ok(());
        }
        let statistics = self.statistics_of.bind(py).call1((device,))?;
        let allocated = if statistics.is_none() {
            None
        } else {
            Some(statistics.getattr("allocated")?.unbind())
        };
        self.streams.bind(py).call_method1("meet", (device,))?;
        self.here.push(Accelerator {
            id,
            clock: clock.unbind(),
            allocated,
            beside: 0,
            seen: None,
            rise: 0,
            short: false,
        });
        Ok(())
    }
}
