//! Counts of what a conversion to a log leaves out.

use std::fmt;

/// Counts of what a trace holds and a log cannot express.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Ops with a workspace.
    pub workspaces: u64,
    /// Storages outside device 0.
    pub devices: u64,
    /// In-place outputs, which became copies.
    pub in_place: u64,
    /// Ops that cannot be replayed, whose outputs became constants.
    pub unreplayable: u64,
    /// `Ensure` events.
    pub ensures: u64,
    /// `Pin` events; those of tensors referenced at the end are implied by the log.
    pub pins: u64,
    /// Plans of steps that the run adopted.
    pub plans: u64,
}

impl Lost {
    /// Whether nothing was lost.
    pub fn is_nothing(&self) -> bool {
        *self == Lost::default()
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = [
            (self.workspaces, "workspaces"),
            (self.devices, "pools other than the first"),
            (self.in_place, "in-place writes (now copies)"),
            (
                self.unreplayable,
                "ops that cannot be replayed (now constants)",
            ),
            (self.ensures, "reads outside ops"),
            (self.pins, "pins"),
            (self.plans, "plans of steps"),
        ];
        let mut separator = "";
        for (count, what) in counts.into_iter().filter(|&(count, _)| count > 0) {
            write!(f, "{separator}{count} {what}")?;
            separator = ", ";
        }
        Ok(())
    }
}
