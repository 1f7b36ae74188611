//! Storages, tensors, ops, and who reads what (DTR appendix C.1). Flat vectors with dense ids; slots and their buffers
//! are reused, so that a steady state allocates nothing.

use crate::arena::blocks::NOWHERE;
use crate::eviction::neighbourhood::Way;
use crate::{
    Bytes, Error, Expected, Kind, OpId, OpSpec, Output, PoolId, Replay, StorageId, TensorId,
};

/// No id, no place.
pub(crate) const NONE: u32 = u32::MAX;

/// One buffer, the unit of eviction.
pub(crate) struct Storage {
    pub(crate) bytes: u64,
    pub(crate) pool: u8,
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
    pub(crate) locks: u32,
    /// References from outside, summed over its tensors.
    pub(crate) refs: u32,
    /// Tensors of it that somebody can still ask for; 0: dead, what a replay makes of it is dropped.
    pub(crate) live_views: u32,
    pub(crate) last_access: u64,
    /// Where its block is in its pool's arena; [`NOWHERE`](crate::arena::blocks::NOWHERE) if it has none.
    pub(crate) address: u64,
    /// Sum of the cost of the distinct ops that make views of it.
    pub(crate) cost: u64,
    /// Its node in the evicted components, [`NONE`] for none or an empty set of its own.
    pub(crate) node: u32,
    /// Place among the candidates of its pool, [`NONE`] when not evictable.
    pub(crate) slot: u32,
    /// Cached numerator of the score, if `scored`.
    pub(crate) numerator: i64,
    /// Latest access to what the numerator counts, cached with it.
    pub(crate) latest_around: u64,
    pub(crate) scored: bool,
    /// The cached numerator is a lower bound: not all that it counts was looked at.
    pub(crate) bounded: bool,
    /// Number of the announcement that it is a result of, 0 once it was computed.
    pub(crate) announced: u64,
    /// The announcements up to this one count in its score (see `neighbourhood.rs`).
    pub(crate) looked: u64,
    /// Of an evicted storage, for each way: no valid numerator of a resident storage that way counts it.
    pub(crate) quiet: [bool; 2],
    /// Of an evicted storage: its resident ancestors count the announcements up to this one.
    pub(crate) told: u64,
    /// Visited in this walk.
    pub(crate) stamp: u32,
    /// For each way, the only other storage next to it; itself if there are none or several, [`NONE`] if that is not known.
    pub(crate) only_next: [u32; 2],
    pub(crate) views: Vec<TensorId>,
    pub(crate) readers: Vec<Reader>,
}

impl Storage {
    /// Nobody can ask for it any more: neither counted nor kept.
    pub(crate) fn gone(&self) -> bool {
        self.live_views == 0 || self.banished
    }
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
    place: u32,
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

/// What a replay makes of an output.
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
    pub(crate) inputs: Vec<TensorId>,
    /// For each input, the place among its storage's readers.
    places: Vec<u32>,
    pub(crate) outputs: Vec<TensorId>,
    pub(crate) made: Vec<Made>,
    pub(crate) cost: u64,
    pub(crate) workspace: u64,
    pub(crate) workspace_pool: u8,
    /// Where its workspace is in an arena while it is open.
    pub(crate) workspace_address: u64,
    /// What it costs for its size, as far as is known.
    pub(crate) kind: Kind,
    /// Its outputs are constants.
    pub(crate) constant: bool,
    /// Outputs that somebody can ask for and that are not settled.
    pub(crate) live: u32,
    pub(crate) stamp: u32,
    /// Estimated bytes to bring its outputs back.
    pub(crate) estimate: u64,
}

/// The graph.
#[derive(Default)]
pub(crate) struct Graph {
    pub(crate) storages: Vec<Storage>,
    pub(crate) tensors: Vec<Tensor>,
    pub(crate) ops: Vec<Op>,
    pub(crate) free_storages: Vec<StorageId>,
    pub(crate) free_tensors: Vec<TensorId>,
    pub(crate) free_ops: Vec<OpId>,
    /// Ops in use.
    pub(crate) live_ops: usize,
    stamp: u32,
    /// Blocks taken over in the op under construction: old storage, new storage, index of the output that takes it.
    taken: Vec<(StorageId, StorageId, usize)>,
}

impl Graph {
    pub(crate) fn storage_of(&self, tensor: TensorId) -> StorageId {
        self.tensors[tensor.index()].storage
    }

    /// Whether somebody can still ask for the tensor.
    pub(crate) fn is_wanted(&self, tensor: TensorId) -> bool {
        let tensor = &self.tensors[tensor.index()];
        tensor.refs > 0 || tensor.uses > 0
    }

    pub(crate) fn is_defined(&self, tensor: TensorId) -> bool {
        self.tensors[tensor.index()].defined
    }

    /// A stamp that no storage and no op bears.
    pub(crate) fn new_stamp(&mut self) -> u32 {
        if self.stamp == u32::MAX {
            self.storages
                .iter_mut()
                .for_each(|storage| storage.stamp = 0);
            self.ops.iter_mut().for_each(|op| op.stamp = 0);
            self.stamp = 0;
        }
        self.stamp += 1;
        self.stamp
    }

    pub(crate) fn add_storage(&mut self, bytes: Bytes, pool: PoolId) -> Result<StorageId, Error> {
        let id = match self.free_storages.pop() {
            Some(id) => id,
            None => {
                let id = StorageId(next_id(self.storages.len())?);
                self.storages.push(Storage {
                    bytes: 0,
                    pool: 0,
                    used: false,
                    resident: false,
                    pinned: false,
                    fixed: false,
                    lost: false,
                    banished: false,
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
                    announced: 0,
                    looked: 0,
                    quiet: [false; 2],
                    told: 0,
                    scored: false,
                    bounded: false,
                    stamp: 0,
                    only_next: [NONE; 2],
                    views: Vec::new(),
                    readers: Vec::new(),
                });
                id
            }
        };
        let storage = &mut self.storages[id.index()];
        storage.bytes = bytes.0;
        storage.pool = pool.0;
        storage.used = true;
        storage.resident = false;
        storage.pinned = false;
        storage.fixed = false;
        storage.lost = false;
        storage.banished = false;
        storage.locks = 0;
        storage.refs = 0;
        storage.live_views = 0;
        storage.last_access = 0;
        storage.address = NOWHERE;
        storage.cost = 0;
        storage.node = NONE;
        storage.slot = NONE;
        storage.scored = false;
        storage.announced = 0;
        storage.looked = 0;
        storage.quiet = [false; 2];
        storage.told = 0;
        storage.only_next = [NONE; 2];
        Ok(id)
    }

    /// A tensor with one reference.
    pub(crate) fn add_tensor(
        &mut self,
        storage: StorageId,
        op: Option<OpId>,
    ) -> Result<TensorId, Error> {
        let place = self.storages[storage.index()].views.len() as u32;
        let tensor = Tensor {
            storage,
            op,
            refs: 1,
            uses: 0,
            defined: false,
            settled: false,
            used: true,
            life: Life::Wanted,
            place,
        };
        let id = match self.free_tensors.pop() {
            Some(id) => {
                self.tensors[id.index()] = tensor;
                id
            }
            None => {
                let id = TensorId(next_id(self.tensors.len())?);
                self.tensors.push(tensor);
                id
            }
        };
        let storage = &mut self.storages[storage.index()];
        storage.only_next[Way::Ancestors as usize] = NONE;
        storage.views.push(id);
        storage.refs += 1;
        storage.live_views += 1;
        Ok(id)
    }

    /// Makes an op and its outputs, none of them computed yet, and ties them to what they read. The caller has checked
    /// the ids and indices.
    pub(crate) fn add_op(&mut self, spec: &OpSpec<'_>, expected: Expected) -> Result<OpId, Error> {
        // Ids run out in one place, so that nothing half made is left behind.
        let headroom = |len: usize, more: usize| len.saturating_add(more) < NONE as usize;
        if !headroom(self.ops.len(), 1)
            || !headroom(self.tensors.len(), spec.outputs.len())
            || !headroom(self.storages.len(), spec.outputs.len())
        {
            return Err(Error::Overflow);
        }
        let id = match self.free_ops.pop() {
            Some(id) => id,
            None => {
                let id = OpId(next_id(self.ops.len())?);
                self.ops.push(Op {
                    phase: Phase::Free,
                    inputs: Vec::new(),
                    places: Vec::new(),
                    outputs: Vec::new(),
                    made: Vec::new(),
                    cost: 0,
                    workspace: 0,
                    workspace_pool: 0,
                    workspace_address: NOWHERE,
                    kind: Kind::Unknown,
                    constant: false,
                    live: 0,
                    stamp: 0,
                    estimate: 0,
                });
                id
            }
        };
        self.live_ops += 1;
        let op = &mut self.ops[id.index()];
        op.phase = Phase::Open;
        op.inputs.clear();
        op.places.clear();
        op.outputs.clear();
        op.made.clear();
        op.made.reserve_exact(spec.outputs.len());
        op.inputs.extend_from_slice(spec.inputs);
        op.cost = expected.cost.0;
        op.workspace = spec.workspace.0;
        op.workspace_pool = spec.workspace_pool.0;
        op.workspace_address = NOWHERE;
        op.kind = expected.kind;
        op.constant = spec.replay == Replay::Forbidden;
        op.live = 0;
        for (index, &input) in spec.inputs.iter().enumerate() {
            let storage = self.storage_of(input);
            let storage = &mut self.storages[storage.index()];
            storage.only_next[Way::Descendants as usize] = NONE;
            let readers = &mut storage.readers;
            self.ops[id.index()].places.push(readers.len() as u32);
            readers.push(Reader {
                op: id,
                index: index as u32,
            });
            self.tensors[input.index()].uses += 1;
        }
        self.take_blocks(id, spec)?;
        for index in 0..spec.outputs.len() {
            let (storage, made) = self.output_storage(spec, index)?;
            let tensor = self.add_tensor(storage, Some(id))?;
            let op = &mut self.ops[id.index()];
            op.outputs.push(tensor);
            op.made.push(made);
        }
        self.charge(id, expected.cost.0 as i64);
        Ok(id)
    }

    /// New storages for the blocks that the op writes into; the first output that names a block takes it.
    fn take_blocks(&mut self, id: OpId, spec: &OpSpec<'_>) -> Result<(), Error> {
        self.taken.clear();
        for (index, output) in spec.outputs.iter().enumerate() {
            let Output::InPlace { of } = *output else {
                continue;
            };
            let old = self.storage_of(spec.inputs[of]);
            if self.taken.iter().any(|&(taken, ..)| taken == old) {
                continue;
            }
            let (bytes, pool, pinned) = {
                let old = &self.storages[old.index()];
                (Bytes(old.bytes), PoolId(old.pool), old.pinned)
            };
            let new = self.add_storage(bytes, pool)?;
            self.taken.push((old, new, index));
            if pinned {
                self.ops[id.index()].constant = true;
            }
        }
        Ok(())
    }

    fn output_storage(
        &mut self,
        spec: &OpSpec<'_>,
        index: usize,
    ) -> Result<(StorageId, Made), Error> {
        let of = match spec.outputs[index] {
            Output::Fresh { bytes, pool } => {
                return Ok((self.add_storage(bytes, pool)?, Made::Fresh))
            }
            Output::Alias { of } | Output::InPlace { of } => of,
        };
        let old = self.storage_of(spec.inputs[of]);
        match self.taken.iter().find(|&&(taken, ..)| taken == old) {
            Some(&(_, new, taker)) if taker == index => Ok((new, Made::InPlace(of as u32))),
            Some(&(_, new, _)) => Ok((new, Made::Alias)),
            None => Ok((old, Made::Alias)),
        }
    }

    /// Adds to the cost of each storage that the op makes a view of, once a storage (DTR appendix C.2).
    pub(crate) fn charge(&mut self, op: OpId, delta: i64) {
        let stamp = self.new_stamp();
        let Graph {
            ops,
            tensors,
            storages,
            ..
        } = self;
        for output in &ops[op.index()].outputs {
            let storage = &mut storages[tensors[output.index()].storage.index()];
            if std::mem::replace(&mut storage.stamp, stamp) != stamp {
                storage.cost = storage.cost.wrapping_add_signed(delta);
            }
        }
    }

    /// Unties an op from what it reads. Its inputs lose a use each; the caller looks after those that lost the last.
    pub(crate) fn untie(&mut self, op: OpId) {
        for index in (0..self.ops[op.index()].inputs.len()).rev() {
            let input = self.ops[op.index()].inputs[index];
            let place = self.ops[op.index()].places[index] as usize;
            let storage = self.storage_of(input);
            let storage = &mut self.storages[storage.index()];
            storage.only_next[Way::Descendants as usize] = NONE;
            let readers = &mut storage.readers;
            readers.swap_remove(place);
            if let Some(&moved) = readers.get(place) {
                self.ops[moved.op.index()].places[moved.index as usize] = place as u32;
            }
            self.tensors[input.index()].uses -= 1;
        }
    }

    /// No op makes the tensor any more.
    pub(crate) fn unmake(&mut self, tensor: TensorId) {
        let storage = self.storage_of(tensor);
        self.storages[storage.index()].only_next[Way::Ancestors as usize] = NONE;
        self.tensors[tensor.index()].op = None;
    }

    /// Takes a tensor off its storage's views; true when it was the last.
    pub(crate) fn unview(&mut self, tensor: TensorId) -> bool {
        let (storage, place) = {
            let tensor = &mut self.tensors[tensor.index()];
            tensor.used = false;
            (tensor.storage, tensor.place as usize)
        };
        let storage = &mut self.storages[storage.index()];
        storage.only_next[Way::Ancestors as usize] = NONE;
        let views = &mut storage.views;
        views.swap_remove(place);
        let last = views.is_empty();
        if let Some(&moved) = views.get(place) {
            self.tensors[moved.index()].place = place as u32;
        }
        last
    }
}

fn next_id(len: usize) -> Result<u32, Error> {
    u32::try_from(len)
        .ok()
        .filter(|&id| id != NONE)
        .ok_or(Error::Overflow)
}
