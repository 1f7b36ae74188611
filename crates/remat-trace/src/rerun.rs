//! Ops of a recorded step that ran again.

/// An op of a recorded step that ran again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rerun {
    /// The op. Constants and ops are numbered together from 0, in the order of the recording.
    pub op: u32,
    /// The index of the event before which it ran; remarks do not count.
    pub event: u32,
}
