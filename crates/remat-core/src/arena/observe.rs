//! An arena whose blocks a real allocator hands out: where a plan wants them, and where they are.

use super::blocks::NOWHERE;
use crate::engine::check_size;
use crate::graph::{Phase, NONE};
use crate::transaction::state::State;
use crate::{Bytes, Engine, Error, OpId, PoolId, StorageId, TensorId};

/// Where a plan puts something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The step that makes it, an index into [`Engine::steps`](crate::Engine::steps); their number for what the op begun makes.
    pub step: usize,
    /// Which of the op's outputs.
    pub output: u32,
    /// From the arena's begin, in bytes.
    pub address: u64,
    /// Before rounding.
    pub bytes: Bytes,
}

/// A taken block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed {
    /// From the arena's begin, in bytes.
    pub address: u64,
    /// Rounded to the alignment.
    pub bytes: Bytes,
    /// Whose it is, if any storage's.
    pub owner: Option<StorageId>,
}

impl Engine {
    /// Where the latest plan puts what its steps make, in the order of [`steps`](Engine::steps); last, those of the op begun.
    pub fn placements(&self) -> &[Placement] {
        &self.state.arenas.placements
    }

    /// The blocks of a pool's arena as an allocator really has them, in address order and without the free ones; what no storage
    /// owns is workspace or another's. From now on decisions go by them. Once blocks were told, storages need not have
    /// one (they may lie outside of the arena), and only the allocator keeps them apart.
    ///
    /// Takes O(n log n) for n blocks.
    ///
    /// # Errors
    /// [`Error::Protocol`] for a pool that is no arena, and for blocks that overlap, are out of order, misaligned or beyond the end;
    /// the arena then holds those before.
    pub fn observe(&mut self, pool: PoolId, blocks: &[Observed]) -> Result<(), Error> {
        self.state.open_call();
        self.state.observe(pool.0, blocks)
    }

    /// [`constant`](Engine::constant) for bytes that are there already and need no room: outside of the arena, or in it where
    /// the next [`observe`](Engine::observe) tells. No steps follow.
    ///
    /// # Errors
    /// [`Error::Overflow`] for sizes beyond 63 bits.
    pub fn constant_elsewhere(&mut self, bytes: Bytes, pool: PoolId) -> Result<TensorId, Error> {
        check_size(bytes.0)?;
        self.state.open_call();
        self.add_constant(bytes, pool)
    }

    /// An op takes more workspace than was known: its replays will reserve so much.
    ///
    /// # Errors
    /// [`Error::Protocol`] for an unknown op, [`Error::Overflow`] for sizes beyond 63 bits.
    pub fn set_workspace(&mut self, op: OpId, bytes: Bytes) -> Result<(), Error> {
        check_size(bytes.0)?;
        let record = self.state.graph.ops.get_mut(op.index());
        let done = record.filter(|record| record.phase == Phase::Done);
        done.ok_or(Error::Protocol("only an op that ran has replays"))?
            .workspace = bytes.0;
        Ok(())
    }

    /// The storage's bytes are known by their address to somebody: they are not moved from now on.
    ///
    /// # Errors
    /// [`Error::Protocol`] for an unknown tensor.
    pub fn fix(&mut self, tensor: TensorId) -> Result<(), Error> {
        self.check_tensor(tensor)?;
        let storage = self.state.graph.storage_of(tensor);
        self.state.graph.storages[storage.index()].fixed = true;
        Ok(())
    }
}

impl State {
    /// Remembers where the op whose blocks were just found puts its outputs.
    pub(crate) fn note_placements(&mut self, step: usize) {
        for request in &self.arenas.requests {
            if let Some(output) = request.output {
                self.arenas.placements.push(Placement {
                    step,
                    output,
                    address: request.address,
                    bytes: Bytes(request.bytes),
                });
            }
        }
    }

    /// Blocks are where they are from now on.
    pub(crate) fn observe(&mut self, pool: u8, blocks: &[Observed]) -> Result<(), Error> {
        if !self.arenas.has(pool) {
            return Err(Error::Protocol(
                "blocks are told of a pool that is no arena",
            ));
        }
        self.arenas.observed = true;
        self.arenas.homeless.clear();
        // Workspace is not reserved where blocks are told.
        while let Some(op) = self.arenas.working.pop() {
            self.graph.ops[op.index()].workspace_address = NOWHERE;
        }
        self.drop_unseen(pool, blocks);
        let mut told = Ok(());
        for &Observed {
            address,
            bytes,
            owner,
        } in blocks
        {
            let Some(arena) = self.arenas.arena(pool) else {
                break;
            };
            let known = arena.pool.size_of(address) == Some(bytes.0);
            if !known && arena.pool.allocate_at(address, bytes.0).is_err() {
                told = Err(Error::Protocol("blocks are told that cannot lie so"));
                break;
            }
            if !known || arena.owner_at(address) != owner {
                self.change_owner(pool, address, owner);
            }
        }
        told
    }

    /// Frees what is not among the blocks.
    fn drop_unseen(&mut self, pool: u8, blocks: &[Observed]) {
        let mut unseen = std::mem::take(&mut self.arenas.evicted);
        unseen.clear();
        let Some(arena) = self.arenas.get(pool) else {
            return;
        };
        let mut told = blocks.iter().peekable();
        for (address, bytes, _) in arena.pool.blocks().filter(|(.., taken)| *taken) {
            while told.next_if(|block| block.address < address).is_some() {}
            let there = told
                .peek()
                .is_some_and(|block| (block.address, block.bytes.0) == (address, bytes));
            if !there {
                unseen.push((address, bytes));
            }
        }
        for &(address, _) in &unseen {
            self.change_owner(pool, address, None);
            self.free_block(pool, address);
        }
        self.arenas.evicted = unseen;
    }

    fn change_owner(&mut self, pool: u8, address: u64, owner: Option<StorageId>) {
        let before = self
            .arenas
            .get(pool)
            .and_then(|arena| arena.owner_at(address));
        if let Some(before) = before.filter(|&before| Some(before) != owner) {
            self.graph.storages[before.index()].address = NOWHERE;
            self.weigh_gaps_of(before);
        }
        if let Some(arena) = self.arenas.arena(pool) {
            arena.set_owner(address, NONE);
        }
        let owned = owner.filter(|s| {
            self.graph
                .storages
                .get(s.index())
                .is_some_and(|storage| storage.used && storage.pool == pool)
        });
        if let Some(s) = owned {
            self.set_address(s, address);
        }
    }
}
