//! Counts of what a trace holds.

use crate::{Event, Planning, TraceOutputKind};

/// Counts over the events of a trace.
///
/// ```
/// use remat_trace::{Event, Summary};
///
/// let mut summary = Summary::default();
/// summary.add(&Event::Constant { tensor: 1, bytes: 64, device: 0 });
/// assert_eq!((summary.tensors, summary.constant_bytes, summary.devices), (1, 64, 1));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Events.
    pub events: u64,
    /// Ops run.
    pub ops: u64,
    /// Ops among them that cannot be replayed.
    pub unreplayable: u64,
    /// Tensors, constants included.
    pub tensors: u64,
    /// Constants.
    pub constants: u64,
    /// Bytes of all constants together.
    pub constant_bytes: u64,
    /// Bytes of all fresh outputs together; they need not have existed at the same time.
    pub output_bytes: u64,
    /// The largest workspace.
    pub largest_workspace: u64,
    /// Cost of all ops, in nanoseconds.
    pub cost: u64,
    /// One more than the largest device index.
    pub devices: u16,
    /// Plans of steps that the run adopted.
    pub plans: u64,
}

impl Summary {
    /// Counts an event of a valid trace.
    pub fn add(&mut self, event: &Event) {
        self.events += 1;
        match event {
            Event::Constant { bytes, device, .. } => {
                self.tensors += 1;
                self.constants += 1;
                self.constant_bytes = self.constant_bytes.saturating_add(*bytes);
                self.see_device(*device);
            }
            Event::Op {
                outputs,
                workspace,
                workspace_device,
                cost,
                replay,
                ..
            } => {
                self.ops += 1;
                self.unreplayable += u64::from(!replay);
                self.cost = self.cost.saturating_add(*cost);
                self.largest_workspace = self.largest_workspace.max(*workspace);
                if *workspace > 0 {
                    self.see_device(*workspace_device);
                }
                for output in outputs {
                    self.tensors += 1;
                    if let TraceOutputKind::Fresh { bytes, device } = output.kind {
                        self.output_bytes = self.output_bytes.saturating_add(bytes);
                        self.see_device(device);
                    }
                }
            }
            Event::Plan(Planning::Follow(_)) => self.plans += 1,
            Event::Plan(_)
            | Event::Retain { .. }
            | Event::Release { .. }
            | Event::Pin { .. }
            | Event::Ensure { .. }
            | Event::Mark { .. } => {}
        }
    }

    fn see_device(&mut self, device: u8) {
        self.devices = self.devices.max(u16::from(device) + 1);
    }
}
