//! The undo journal: the changes of a plan, newest last, so that a plan that does not fit leaves no trace and one that
//! was cut short leaves only what was performed. Written only while planning.

use crate::counters::Counters;
use crate::dedup::push_deduplicated;
use crate::ids::{OpId, StorageId, TensorId};

/// One change; changes are undone from the newest to the oldest.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Entry {
    Locked(StorageId),
    Unlocked(StorageId),
    Listed(StorageId),
    /// Taken off the candidates, where it stood at this place.
    Delisted(StorageId, u64),
    /// Last access before.
    Accessed(StorageId, u64),
    BecameResident(StorageId),
    BecameEvicted(StorageId),
    Pinned(StorageId),
    Defined(TensorId),
    Undefined(TensorId),
    /// Bytes of a device before.
    Memory(u8, u64),
    /// Peak of a device before.
    Peak(u8, u64),
    /// An op was replayed: clock and counters moved by its cost.
    Replayed(OpId),
    /// A victim was sought: so many scores evaluated, so many storages looked at.
    Searched(u32, u64),
    /// The state of the draws before.
    Drew(u64),
    /// A component node was made.
    NodeMade(u32),
    /// This node was hung under another.
    Joined(u32),
    /// The cost of the set of this root grew by so much.
    ComponentCost(u32, i64),
    /// The latest announcement that a storage's score counted before.
    Saw(StorageId, u64),
    /// The latest announcement that the ancestors of a storage counted before.
    Propagated(StorageId, u64),
    /// The node of a storage before.
    Node(StorageId, u32),
    /// A block of a device's arena was taken at this address.
    Taken(u8, u64),
    /// The block at this address was freed; its bytes are the latest of `freed`.
    Freed(u8, u64),
    /// The address of a storage before.
    Address(StorageId, u64),
    /// An arena's shortage: the counters before it are the latest of `counters`.
    Counted,
    /// The capacity of an arena before.
    Capacity(u8, u64),
}

/// The journal of the call under way, or of the latest one until the next begins.
#[derive(Default)]
pub(crate) struct Journal {
    pub(crate) entries: Vec<Entry>,
    /// For each step, the length of the journal before its effects; one more at the end of a finished plan.
    pub(crate) marks: Vec<usize>,
    /// Storages whose numerators were computed while the journal was on.
    pub(crate) scored: Vec<StorageId>,
    /// Bytes of the blocks freed, one for each such entry.
    pub(crate) freed: Vec<u64>,
    /// Counters before shortages, one for each such entry.
    pub(crate) counters: Vec<Counters>,
    on: bool,
}

impl Journal {
    pub(crate) fn start(&mut self) {
        self.clear();
        self.on = true;
    }

    /// Stops writing; what was written can still be undone.
    pub(crate) fn stop(&mut self) {
        self.on = false;
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.marks.clear();
        self.scored.clear();
        self.freed.clear();
        self.counters.clear();
        self.on = false;
    }

    #[inline]
    pub(crate) fn write(&mut self, entry: Entry) {
        if self.on {
            self.entries.push(entry);
        }
    }

    pub(crate) fn write_freed(&mut self, device: u8, address: u64, bytes: u64) {
        if self.on {
            self.freed.push(bytes);
            self.entries.push(Entry::Freed(device, address));
        }
    }

    pub(crate) fn write_counters(&mut self, before: Counters) {
        if self.on {
            self.counters.push(before);
            self.entries.push(Entry::Counted);
        }
    }

    pub(crate) fn note_scored(&mut self, s: StorageId) {
        if self.on {
            push_deduplicated(&mut self.scored, s);
        }
    }

    pub(crate) fn mark(&mut self) {
        if self.on {
            self.marks.push(self.entries.len());
        }
    }
}
