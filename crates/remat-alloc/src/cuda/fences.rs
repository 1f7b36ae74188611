//! Free bytes that other streams must wait for: each stretch with the stream on which it was freed and the event
//! recorded then.

use super::events::{EventId, Events};

/// Free bytes `start .. end`, safe on `stream`, and on others once `event` has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence {
    /// First address.
    pub start: u64,
    /// The address after the last.
    pub end: u64,
    /// The stream's handle.
    pub stream: usize,
    /// Recorded on that stream when the bytes were freed, or later.
    pub event: EventId,
}

/// Fences in address order; no two overlap, and each holds its event once.
#[derive(Default)]
pub struct Fences {
    all: Vec<Fence>,
}

impl Fences {
    /// Those that touch any of the bytes `start .. end`.
    pub fn over(&self, start: u64, end: u64) -> &[Fence] {
        let (first, beyond) = self.range(start, end);
        &self.all[first..beyond]
    }

    /// Adds a fence where there is none, and takes its event over from the caller. Neighbours of the same stream become
    /// one with it, behind the latest of their events: on one stream it comes after the others.
    pub fn add(&mut self, events: &mut Events, mut fence: Fence) {
        let at = self.all.partition_point(|other| other.end <= fence.start);
        let joins = |other: Option<&Fence>, touches: fn(&Fence, &Fence) -> bool| {
            other
                .copied()
                .filter(|other| other.stream == fence.stream && touches(other, &fence))
        };
        let below = joins(
            at.checked_sub(1).and_then(|below| self.all.get(below)),
            |other, new| other.end == new.start,
        );
        let above = joins(self.all.get(at), |other, new| other.start == new.end);
        let (mut first, mut beyond) = (at, at);
        if let Some(below) = below {
            fence.event = events.later(fence.event, below.event);
            fence.start = below.start;
            first -= 1;
        }
        if let Some(above) = above {
            fence.event = events.later(fence.event, above.event);
            fence.end = above.end;
            beyond += 1;
        }
        self.all.splice(first..beyond, [fence]);
    }

    /// Takes the fences off the bytes `start .. end`; parts of them outside stay.
    pub fn lift(&mut self, events: &mut Events, start: u64, end: u64) {
        let (first, beyond) = self.range(start, end);
        if first == beyond {
            return;
        }
        let (low, high) = (self.all[first], self.all[beyond - 1]);
        let below = Fence { end: start, ..low };
        let above = Fence { start: end, ..high };
        for left in [below, above] {
            if left.start < left.end {
                events.hold(left.event);
            }
        }
        for at in first..beyond {
            events.release(self.all[at].event);
        }
        let left = [below, above].into_iter();
        let left = left.filter(|fence| fence.start < fence.end);
        self.all.splice(first..beyond, left);
    }

    fn range(&self, start: u64, end: u64) -> (usize, usize) {
        let first = self.all.partition_point(|fence| fence.end <= start);
        let beyond = self.all.partition_point(|fence| fence.start < end);
        (first, beyond.max(first))
    }
}
