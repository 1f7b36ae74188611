//! Where the bytes of each storage of the engine are.

use remat_core::{DeviceId, StorageId};

use super::live::LiveId;
use super::owner::Owner;
use crate::timeline::Timeline;

/// The place of an engine storage's bytes.
pub enum Buffer {
    /// Nowhere.
    Empty,
    /// In a storage that the program holds (if `present`).
    Live(LiveId),
    /// In a storage of the table's own.
    Scratch(Scratch),
}

/// A storage that the table owns.
pub struct Scratch {
    /// The reference by which it owns the storage.
    pub owner: Owner,
    /// Its size.
    pub bytes: u64,
    /// The device that holds it.
    pub device: DeviceId,
}

/// The places of all storages of the engine.
#[derive(Default)]
pub(super) struct Buffers {
    places: Vec<Buffer>,
}

impl Buffers {
    /// The place of a storage's bytes.
    pub(super) fn at(&self, sid: StorageId) -> &Buffer {
        self.places.get(sid.index()).unwrap_or(&Buffer::Empty)
    }

    /// Sets the place of a storage's bytes; returns the place they had before.
    pub(super) fn set(
        &mut self,
        sid: StorageId,
        buffer: Buffer,
        timeline: Option<&Timeline>,
    ) -> Buffer {
        if self.places.len() <= sid.index() {
            self.places.resize_with(sid.index() + 1, || Buffer::Empty);
        }
        if let Some(timeline) = timeline {
            tell_of_scratch(timeline, sid, &self.places[sid.index()], &buffer);
        }
        std::mem::replace(&mut self.places[sid.index()], buffer)
    }

    /// Every scratch storage, with the engine storage whose bytes it has.
    pub(super) fn scratch(&self) -> impl Iterator<Item = (StorageId, &Scratch)> {
        let all = self.places.iter().enumerate();
        all.filter_map(|(index, buffer)| match buffer {
            Buffer::Scratch(storage) => Some((StorageId(index as u32), storage)),
            _ => None,
        })
    }
}

/// Tells the timeline of storages that only replays need.
fn tell_of_scratch(timeline: &Timeline, sid: StorageId, before: &Buffer, after: &Buffer) {
    if let Buffer::Scratch(_) = before {
        timeline.tell(|recorder| recorder.scratch_gone(sid));
    }
    if let Buffer::Scratch(scratch) = after {
        timeline.tell(|recorder| recorder.scratch(sid, scratch.bytes, scratch.device));
    }
}
