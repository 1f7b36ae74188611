//! The events of a step.

use super::blocks::{Block, BlockId};
use super::places::PlaceId;

/// A tick of the timeline's clock is so many nanoseconds.
pub(super) const TICK: u64 = 100;

/// Something that happened. Times are ticks since the run began.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// An op ran; blocks that are born next are its results.
    Op {
        at: u64,
        took: u32,
        place: PlaceId,
        /// Bytes that it needed while it ran, beyond inputs and results.
        workspace: u64,
    },
    /// An op ran again; blocks that return next are its results.
    Replay {
        at: u64,
        took: u32,
        place: PlaceId,
        workspace: u64,
    },
    /// A storage got its memory.
    Born { at: u64, block: BlockId },
    /// A storage died.
    Died { at: u64, block: BlockId },
    /// A storage lost its bytes; the program still holds it.
    Evicted { at: u64, block: BlockId },
    /// It got them back.
    Returned { at: u64, block: BlockId },
    /// Memory that torch did not allocate came to be used, or no more.
    Outside { at: u64, bytes: i64 },
}

impl Event {
    /// When it happened, or began.
    pub(super) fn at(&self) -> u64 {
        match *self {
            Event::Op { at, .. }
            | Event::Replay { at, .. }
            | Event::Born { at, .. }
            | Event::Died { at, .. }
            | Event::Evicted { at, .. }
            | Event::Returned { at, .. }
            | Event::Outside { at, .. } => at,
        }
    }
}

/// A step, event by event.
#[derive(Default)]
pub(super) struct Detail {
    pub(super) events: Vec<Event>,
    /// The blocks as they were when it ended.
    pub(super) blocks: Vec<Block>,
    /// Bytes that torch did not allocate, when it began.
    pub(super) outside: i64,
}
