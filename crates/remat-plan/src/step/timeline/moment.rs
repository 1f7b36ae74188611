//! Moments of a schedule.

/// A run of an op: in slot `k` run the ops that run again right before op `k`, in program order, and then op `k`
/// itself for the first time. Moments compare as the runs follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(u64);

impl Moment {
    /// After all runs.
    pub(crate) const END: Moment = Moment(u64::MAX);

    pub(crate) fn new(slot: u32, op: u32) -> Moment {
        Moment(u64::from(slot) << 32 | u64::from(op))
    }

    /// The first run of an op.
    pub(crate) fn first(op: u32) -> Moment {
        Moment::new(op, op)
    }

    pub(crate) fn slot(self) -> u32 {
        (self.0 >> 32) as u32
    }

    pub(crate) fn op(self) -> u32 {
        self.0 as u32
    }
}
