//! The records of storages, tensors and ops (DTR appendix C.1). Short lists lie in the records, where they take no more
//! room than the pointer to a longer one: what an op needs is read before it runs, mostly from memory that its
//! predecessors drove out of the caches.

use crate::ids::{Bytes, DeviceId, OpId, StorageId, TensorId};
use crate::op::Kind;
use smallvec::SmallVec;

/// Stands for no id and no place in flat vectors of `u32`.
pub(crate) const NONE: u32 = u32::MAX;

/// Stands for no address in flat records.
pub(crate) const NOWHERE: u64 = u64::MAX;

/// Which way a walk along the graph goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Ancestors,
    Descendants,
}

impl Way {
    pub(crate) fn back(self) -> Way {
        match self {
            Way::Ancestors => Way::Descendants,
            Way::Descendants => Way::Ancestors,
        }
    }
}

/// How much a numerator counts of what it ought to; it is a lower bound where that is not all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Precision {
    /// As much as makes it dearer than the latest victims were.
    Enough,
    /// The part that a short walk saw.
    Few,
    Whole,
}

/// One buffer, the unit of eviction.
pub(crate) struct Storage {
    pub(crate) bytes: u64,
    pub(crate) device: u8,
    /// The slot is in use.
    pub(crate) used: bool,
    pub(crate) resident: bool,
    pub(crate) pinned: bool,
    /// Its bytes are known by their address, and stay where they are.
    pub(crate) fixed: bool,
    /// Its value was overwritten and cannot be computed again.
    pub(crate) lost: bool,
    /// Freed for good: nothing computed from it will need it.
    pub(crate) banished: bool,
    /// A plan has use for its value after the last reference from outside went.
    pub(crate) kept: bool,
    pub(crate) locks: u32,
    /// References from outside, summed over its tensors.
    pub(crate) refs: u32,
    /// Tensors of it that somebody can still ask for. At 0 the storage is unreachable: a replay that makes it drops it.
    pub(crate) live_views: u32,
    pub(crate) last_access: u64,
    /// Where its block is in its device's arena; [`NOWHERE`](crate::graph::NOWHERE) if it has none.
    pub(crate) address: u64,
    /// Sum of the cost of the distinct ops that make views of it.
    pub(crate) cost: u64,
    /// Its node in the evicted components, [`NONE`] for none or an empty set of its own.
    pub(crate) node: u32,
    /// Place among the candidates of its device, [`NONE`] when not evictable.
    pub(crate) slot: u32,
    /// Cached numerator of the score, if `scored`.
    pub(crate) numerator: i64,
    /// Latest access to the evicted storages that the numerator counts, cached with it.
    pub(crate) latest_around: u64,
    pub(crate) scored: bool,
    /// How much of what counts the cached numerator does count.
    pub(crate) precision: Precision,
    /// Number of the announcement that it is a result of, 0 once it was computed.
    pub(crate) announced: u64,
    /// The announcements up to this one count in its score, if not all do.
    pub(crate) seen_announcement: u64,
    /// Of an evicted storage, for each way: no valid numerator of a resident storage that way counts it.
    pub(crate) unobserved: [bool; 2],
    /// Of an evicted storage: its resident ancestors count the announcements up to this one.
    pub(crate) propagated_announcement: u64,
    /// Visited in this walk.
    pub(crate) stamp: u32,
    pub(crate) views: SmallVec<[TensorId; 4]>,
    pub(crate) readers: SmallVec<[Reader; 2]>,
}

impl Storage {
    /// A storage that is not computed yet, without views and readers.
    pub(super) fn new(bytes: Bytes, device: DeviceId) -> Storage {
        Storage {
            bytes: bytes.0,
            device: device.0,
            used: true,
            resident: false,
            pinned: false,
            fixed: false,
            lost: false,
            banished: false,
            kept: false,
            locks: 0,
            refs: 0,
            live_views: 0,
            last_access: 0,
            address: NOWHERE,
            cost: 0,
            node: NONE,
            slot: NONE,
            numerator: 0,
            latest_around: 0,
            scored: false,
            precision: Precision::Whole,
            announced: 0,
            seen_announcement: 0,
            unobserved: [false; 2],
            propagated_announcement: 0,
            stamp: 0,
            views: SmallVec::new(),
            readers: SmallVec::new(),
        }
    }

    /// The slot takes another storage, which inherits nothing but the buffers of the one before. That one has no views
    /// and no readers any more.
    pub(super) fn renew(&mut self, bytes: Bytes, device: DeviceId) {
        debug_assert!(self.views.is_empty() && self.readers.is_empty());
        let mut renewed = Storage::new(bytes, device);
        std::mem::swap(&mut renewed.views, &mut self.views);
        std::mem::swap(&mut renewed.readers, &mut self.readers);
        let before = std::mem::replace(self, renewed);
        // It owns nothing any more: dropping it would be work for nothing, once an op.
        std::mem::forget(before);
    }

    /// Nobody can ask for it any more: it is neither counted nor kept.
    pub(crate) fn unreachable(&self) -> bool {
        self.live_views == 0 || self.banished
    }
}

/// The other storages next to a storage one way, as walks meet them. Read off the ops when a walk first comes by, and
/// again once an op was linked or unlinked.
#[derive(Default)]
pub(super) struct Next {
    /// Some may stand twice.
    pub(super) list: Vec<StorageId>,
    /// The list is that of the ops.
    pub(super) known: bool,
}

/// An op that reads a storage, by its input at `index`.
#[derive(Clone, Copy)]
pub(crate) struct Reader {
    pub(crate) op: OpId,
    pub(crate) index: u32,
}

/// A view of a storage, made by one op.
pub(crate) struct Tensor {
    pub(crate) storage: StorageId,
    /// The op that makes it; `None` for a constant.
    pub(crate) op: Option<OpId>,
    /// References from outside.
    pub(crate) refs: u32,
    /// Input places of remembered ops that name it.
    pub(crate) uses: u32,
    /// Its op ran after the storage last became resident.
    pub(crate) defined: bool,
    /// Defined in a pinned storage: its op is not needed for it any more.
    pub(crate) settled: bool,
    pub(crate) used: bool,
    pub(crate) life: Life,
    /// Place in its storage's views.
    pub(crate) place: u32,
}

/// How far the collection of a tensor has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    Wanted,
    /// Nobody can ask for it; to be followed up.
    Queued,
    /// Followed up; its id stays until its op goes.
    Forgotten,
}

/// Life of an op record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Free,
    /// Begun and not finished.
    Open,
    /// Ran once; can be replayed.
    Done,
}

/// How a replay makes an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Made {
    Fresh,
    Alias,
    /// Written into the block of the input at this index.
    InPlace(u32),
}

/// An op that was begun.
pub(crate) struct Op {
    pub(crate) phase: Phase,
    pub(crate) inputs: SmallVec<[TensorId; 4]>,
    /// For each input, the place among its storage's readers.
    pub(crate) places: SmallVec<[u32; 4]>,
    pub(crate) outputs: SmallVec<[TensorId; 4]>,
    pub(crate) made: SmallVec<[Made; 2]>,
    pub(crate) cost: u64,
    pub(crate) workspace: u64,
    pub(crate) workspace_device: u8,
    /// Where its workspace is in an arena while it is open.
    pub(crate) workspace_address: u64,
    /// How its cost grows with its size, as far as is known.
    pub(crate) kind: Kind,
    /// Its outputs are constants.
    pub(crate) constant: bool,
    /// Outputs that somebody can ask for and that are not settled.
    pub(crate) live: u32,
    pub(crate) stamp: u32,
    /// Estimated bytes to bring its outputs back.
    pub(crate) estimate: u64,
}

impl Op {
    /// The slot takes another op, which inherits nothing but the buffers of the one before.
    pub(super) fn renew(&mut self) {
        self.inputs.clear();
        self.places.clear();
        self.outputs.clear();
        self.made.clear();
        let mut renewed = Op {
            phase: Phase::Open,
            ..Op::default()
        };
        std::mem::swap(&mut renewed.inputs, &mut self.inputs);
        std::mem::swap(&mut renewed.places, &mut self.places);
        std::mem::swap(&mut renewed.outputs, &mut self.outputs);
        std::mem::swap(&mut renewed.made, &mut self.made);
        let before = std::mem::replace(self, renewed);
        // As for storages: it owns nothing any more.
        std::mem::forget(before);
    }
}

impl Default for Op {
    /// A free slot.
    fn default() -> Op {
        Op {
            phase: Phase::Free,
            inputs: SmallVec::new(),
            places: SmallVec::new(),
            outputs: SmallVec::new(),
            made: SmallVec::new(),
            cost: 0,
            workspace: 0,
            workspace_device: 0,
            workspace_address: NOWHERE,
            kind: Kind::Unknown,
            constant: false,
            live: 0,
            stamp: 0,
            estimate: 0,
        }
    }
}
