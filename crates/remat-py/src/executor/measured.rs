//! A run that is measured: steps that repeat are recorded, and the one that takes most memory is written as a trace.

use std::path::Path;

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use remat_core::{Bytes, Recorded, Told};
use remat_plan::step::Learned;
use remat_sim::Program;
use remat_trace::{Event, Header, TraceWriter};

use super::state::Executor;
use crate::tracking::trace::Rooms;

/// The mark in a trace where a step is known that takes more than those before.
pub const STEP_KNOWN: &str = "step known";

/// Ops that a trace may have in which a floor is sought.
const TRACED_OPS: u64 = 1 << 20;

/// A step that repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeasuredStep {
    /// Ops in it.
    pub ops: usize,
    /// Bytes of what is there when it begins and cannot be made again: parameters, state of the optimizer, data.
    pub at_rest: u64,
    /// Whether the trace holds the run until it was known.
    pub traced: bool,
}

impl Executor {
    /// Records steps that repeat from now on, replays or not.
    pub fn measure_steps(&mut self) {
        self.engine.learn_all_steps(self.budget_device);
        self.measured = Some(Vec::new());
    }

    /// Has the trace hold what a floor is sought in: bytes as `rooms` says, and a mark where a step is known that takes
    /// more than those before. It ends after many ops; a run of more of them without a mark leaves no trace.
    pub fn trace_floor(&mut self, rooms: Rooms) {
        if let Some(trace) = &mut self.trace {
            trace.bound(rooms, TRACED_OPS);
        }
    }

    /// Keeps a step that was recorded, and says so if it takes more memory than those before: the program may be ended
    /// then.
    pub(super) fn tend_measured(&mut self) {
        let traced = self.step_traced;
        self.trace
            .take_if(|trace| trace.is_full() && (!traced || trace.complete()));
        let Some(steps) = &mut self.measured else {
            return;
        };
        let Some(recorded) = self.engine.recorded_step() else {
            return;
        };
        let most = steps.iter().map(peak).max().unwrap_or(0);
        let (ops, takes) = (recorded.signatures.len(), peak(&recorded));
        if takes > most {
            self.step_traced = self.trace.is_some();
            if let Some(trace) = &mut self.trace {
                trace.mark(STEP_KNOWN);
            }
            let takes = Bytes(takes);
            eprintln!(
                "remat: a step of {ops} ops that takes {takes} is known; Ctrl-C ends the program, and the table follows"
            );
        }
        steps.push(recorded);
    }

    /// Writes the recorded step that takes most memory; `None` if none was recorded.
    ///
    /// # Errors
    /// `OSError` if the file cannot be written.
    pub fn write_measured(&self, path: &Path) -> PyResult<Option<MeasuredStep>> {
        let steps = self.measured.iter().flatten();
        let Some(step) = steps.max_by_key(|step| peak(step)) else {
            return Ok(None);
        };
        self.write_step(path, Learned::new(step).events())
            .map_err(|e| {
                PyOSError::new_err(format!("cannot write the step {}: {e}", path.display()))
            })?;
        Ok(Some(MeasuredStep {
            ops: step.signatures.len(),
            at_rest: at_rest(step),
            traced: self.step_traced,
        }))
    }

    /// The device that is measured is device 0 of the trace, and takes the place of the one that is.
    fn write_step(&self, path: &Path, events: &[Event]) -> std::io::Result<()> {
        let mut devices: Vec<String> = self
            .devices
            .iter()
            .map(|device| device.name.clone())
            .collect();
        devices.swap(0, usize::from(self.budget_device.0));
        let header = Header {
            devices,
            ..Header::default()
        };
        let mut writer = TraceWriter::create_with(path, &header)?;
        events.iter().try_for_each(|event| writer.write(event))?;
        writer.finish()
    }
}

/// The most memory that a step takes without a limit; 0 for one that cannot be followed.
fn peak(step: &Recorded) -> u64 {
    let program: Program = Learned::new(step).events().iter().collect();
    program.base().map_or(0, |base| base.memory.0)
}

fn at_rest(step: &Recorded) -> u64 {
    let there = step.events.iter().filter_map(|told| match told {
        Told::There {
            bytes,
            device,
            pinned: true,
            ..
        } if *device == step.device => Some(bytes.0),
        _ => None,
    });
    there.sum()
}
