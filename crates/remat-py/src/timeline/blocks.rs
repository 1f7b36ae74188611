//! The memory of storages: blocks of bytes, each of a kind.

use remat_core::{DeviceId, StorageId};
use rustc_hash::FxHashMap;

use super::places::PlaceId;

/// The use of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum MemoryKind {
    /// Parameters of modules.
    Parameter,
    /// Gradients that autograd left in leaves.
    Gradient,
    /// Kept by an optimizer from step to step.
    OptimizerState,
    /// Results of ops of the forward pass.
    Activation,
    /// Results of ops of the backward pass and of the update.
    Temporary,
    /// Data, buffers, and all that no op of the run made.
    Other,
}

/// The names of kinds, in their order.
pub(super) const KINDS: [&str; 6] = [
    "parameters",
    "gradients",
    "optimizer state",
    "activations",
    "temporaries",
    "other",
];

/// The memory of a storage. It may be dropped and come back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) bytes: u64,
    pub(super) kind: MemoryKind,
    /// The op that made it, if one did.
    pub(super) place: PlaceId,
    /// A number that no other block of the run has.
    pub(super) serial: u64,
    pub(super) present: bool,
    /// Whether the bytes were there when the step began.
    pub(super) there: bool,
    pub(super) device: DeviceId,
}

/// An index of a live storage in the session's table.
pub type LiveId = u32;

/// An index of a block, used again in later steps.
pub(super) type BlockId = u32;

const NONE: BlockId = BlockId::MAX;

/// The blocks of the step, and those before it that are still held.
#[derive(Default)]
pub(super) struct Blocks {
    pub(super) all: Vec<Block>,
    free: Vec<BlockId>,
    /// Blocks whose storages died in the step.
    dead: Vec<BlockId>,
    /// By live storage.
    lives: Vec<BlockId>,
    /// Of storages that replays need and the program does not.
    scratch: FxHashMap<StorageId, BlockId>,
    serial: u64,
}

impl Blocks {
    fn add(&mut self, bytes: u64, device: DeviceId, kind: MemoryKind, place: PlaceId) -> BlockId {
        self.serial += 1;
        let block = Block {
            bytes,
            kind,
            place,
            serial: self.serial,
            present: true,
            there: false,
            device,
        };
        if let Some(id) = self.free.pop() {
            self.all[id as usize] = block;
            return id;
        }
        self.all.push(block);
        (self.all.len() - 1) as BlockId
    }

    /// A live storage got its memory.
    pub(super) fn born(
        &mut self,
        live: LiveId,
        bytes: u64,
        device: DeviceId,
        kind: MemoryKind,
        place: PlaceId,
    ) -> BlockId {
        let id = self.add(bytes, device, kind, place);
        let live = live as usize;
        if self.lives.len() <= live {
            self.lives.resize(live + 1, NONE);
        }
        self.lives[live] = id;
        id
    }

    /// The block of a live storage.
    pub(super) fn of(&self, live: LiveId) -> Option<BlockId> {
        let id = self.lives.get(live as usize).copied();
        id.filter(|&id| id != NONE)
    }

    /// A live storage died. Its block, if the bytes were there.
    pub(super) fn died(&mut self, live: LiveId) -> Option<BlockId> {
        let id = self.of(live)?;
        self.lives[live as usize] = NONE;
        self.dead.push(id);
        let block = &mut self.all[id as usize];
        std::mem::replace(&mut block.present, false).then_some(id)
    }

    /// A replay needs memory that the program does not hold.
    pub(super) fn scratch(
        &mut self,
        sid: StorageId,
        bytes: u64,
        device: DeviceId,
        place: PlaceId,
    ) -> BlockId {
        let id = self.add(bytes, device, MemoryKind::Activation, place);
        self.scratch.insert(sid, id);
        id
    }

    /// A replay needs that memory no more.
    pub(super) fn scratch_gone(&mut self, sid: StorageId) -> Option<BlockId> {
        let id = self.scratch.remove(&sid)?;
        self.dead.push(id);
        self.all[id as usize].present = false;
        Some(id)
    }

    /// The next step begins: blocks of dead storages are used again.
    pub(super) fn turn(&mut self) {
        self.free.append(&mut self.dead);
        for block in &mut self.all {
            block.there = block.present;
        }
    }
}
