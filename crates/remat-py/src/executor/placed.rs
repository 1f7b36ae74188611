//! Memory with addresses: the engine's blocks are the allocator's. Before a decision the engine is told of blocks that it does not
//! know; what it places, the allocator keeps until the op asks for it.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use remat_core::{Bytes, Observed, OpId, Placement, PoolId, StorageId};

use super::{budget_error, CoreState};
use crate::arena::Arena;
use crate::layout::Impl;
use crate::storages::Buffer;

/// The arena is that of the CPU, whose budget is the first.
pub const PLACED: PoolId = PoolId(0);

/// What torch says when its allocator got no memory for a tensor.
const EXHAUSTED: &str = "DefaultCPUAllocator";

/// Whether torch found no memory for a tensor.
pub fn is_exhausted(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<PyRuntimeError>(py) && error.value(py).to_string().contains(EXHAUSTED)
}

/// For how many bytes.
fn asked_for(py: Python<'_>, error: &PyErr) -> u64 {
    let message = error.value(py).to_string();
    let asked = message.split("tried to allocate ").nth(1);
    let digits = asked.and_then(|rest| rest.split(' ').next());
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

/// Does what may replay, once more when a replay finds no block: its workspace is known better then.
pub fn replaying<S: AsMut<CoreState>, T>(
    py: Python<'_>,
    state: &mut S,
    mut action: impl FnMut(&mut S) -> PyResult<T>,
) -> PyResult<T> {
    const ATTEMPTS: u32 = 16;
    for _ in 0..ATTEMPTS {
        state.as_mut().sync(py)?;
        match action(state) {
            Err(e) if state.as_mut().arena.is_some() && is_exhausted(py, &e) => {
                state.as_mut().note_exhausted(py, &e)
            }
            done => return done,
        };
    }
    Err(state.as_mut().no_block(py))
}

impl AsMut<CoreState> for CoreState {
    fn as_mut(&mut self) -> &mut CoreState {
        self
    }
}

impl CoreState {
    /// Tells the engine where blocks are, if it knows otherwise.
    pub fn sync(&mut self, py: Python<'_>) -> PyResult<()> {
        let (Some(arena), Some(known)) = (&self.arena, self.engine.arena(PLACED)) else {
            return Ok(());
        };
        let known = known.capacity() - known.free_bytes();
        if arena.stale || arena.statistics().in_use != known {
            self.observe(py)?;
        }
        Ok(())
    }

    /// Tells the engine where blocks are.
    pub fn observe(&mut self, py: Python<'_>) -> PyResult<()> {
        let Some(mut arena) = self.arena.take() else {
            return Ok(());
        };
        self.list_owners(py, &arena);
        let capacity = self.engine.arena(PLACED).map_or(0, |pool| pool.capacity());
        let mut observed = std::mem::take(&mut self.observed);
        observed.clear();
        let taken = arena
            .taken()
            .filter(|(address, bytes)| address + bytes <= capacity);
        observed.extend(taken.map(|(address, bytes)| Observed {
            address,
            bytes: Bytes(bytes),
            owner: self.owners.get(&address).copied(),
        }));
        let told = self.engine.observe(PLACED, &observed);
        arena.stale = false;
        self.observed = observed;
        self.arena = Some(arena);
        told.map_err(|e| self.refusal(py, &e))
    }

    /// Whose bytes begin where.
    fn list_owners(&mut self, py: Python<'_>, arena: &Arena) {
        self.owners.clear();
        for (_, live) in self
            .storages
            .all()
            .filter(|(_, live)| live.present && live.pool == PLACED)
        {
            let origin = self.layout.origin(py, live.imp);
            self.owners
                .insert(arena.offset(origin.data), self.engine.storage(live.tensor));
        }
        for (sid, storage) in self.storages.scratch() {
            if let Ok(imp) = Impl::of(storage.bind(py)) {
                self.owners
                    .insert(arena.offset(self.layout.origin(py, imp).data), sid);
            }
        }
        // What the op that runs makes has its place, allocated or not.
        for placement in &self.placements {
            if let Some(sid) = self.running.and_then(|op| self.output(op, placement)) {
                self.owners.entry(placement.address).or_insert(sid);
            }
        }
    }

    fn output(&self, op: OpId, placement: &Placement) -> Option<StorageId> {
        let tensor = self.engine.outputs(op).get(placement.output as usize)?;
        Some(self.engine.storage(*tensor))
    }

    /// What the engine placed for a step has its block kept.
    pub(super) fn expect(&mut self, step: usize) {
        let Some(arena) = &mut self.arena else { return };
        for placement in self
            .placements
            .iter()
            .filter(|placement| placement.step == step)
        {
            arena.expect(placement.address, placement.bytes.0);
        }
    }

    /// The op that was begun will be called now: blocks for what it makes are kept; its placements are all that is remembered.
    pub fn expect_outputs(&mut self, steps: usize) {
        if self.arena.is_none() {
            return;
        }
        self.placements.clear();
        let all = self.engine.placements();
        self.placements
            .extend(all.iter().filter(|placement| placement.step == steps));
        self.expect(steps);
    }

    /// Nothing is kept any more.
    pub fn expect_no_more(&mut self) {
        if let Some(arena) = &mut self.arena {
            arena.expect_no_more();
        }
    }

    /// Copies a storage's bytes to another address of the arena; whoever holds the storage finds them there.
    pub(super) fn move_bytes(
        &mut self,
        py: Python<'_>,
        sid: StorageId,
        address: u64,
    ) -> PyResult<()> {
        let Some(object) = self.storages.object(py, sid)? else {
            return Ok(()); // it died since: its block is free
        };
        let imp = Impl::of(&object)?;
        let bytes: u64 = object
            .call_method0(pyo3::intern!(py, "nbytes"))?
            .extract()?;
        if let Some(arena) = &mut self.arena {
            arena.expect(address, bytes);
        }
        let device = &self.pools[usize::from(PLACED.0)].device;
        let copy = self.seam.blank_storage.bind(py).call1((device, bytes));
        self.expect_no_more();
        let copy = copy?;
        let new = Impl::of(&copy)?;
        self.layout.copy(py, imp, new, bytes as usize);
        self.layout.swap(py, imp, new);
        if let Some(arena) = &mut self.arena {
            arena.stale |= arena.offset(self.layout.origin(py, imp).data) != address;
        }
        Ok(())
    }

    /// Whether what finds no room is the system's.
    pub(super) fn spill(&self, spill: bool) {
        if let Some(arena) = &self.arena {
            arena.spill(spill);
        }
    }

    /// Whether outputs of an op that just ran lie elsewhere than was planned.
    pub(super) fn check_places(&mut self, py: Python<'_>, op: OpId, step: usize) {
        let Some(arena) = &self.arena else { return };
        let elsewhere = self
            .placements
            .iter()
            .filter(|placement| placement.step == step)
            .any(|placement| {
                let buffer = self
                    .output(op, placement)
                    .map(|sid| self.storages.buffer(sid));
                let imp = match buffer {
                    Some(Buffer::Live(id)) => self
                        .storages
                        .live(*id)
                        .filter(|live| live.present)
                        .map(|live| live.imp),
                    Some(Buffer::Scratch(storage)) => Impl::of(storage.bind(py)).ok(),
                    _ => None,
                };
                imp.is_some_and(|imp| {
                    arena.offset(self.layout.origin(py, imp).data) != placement.address
                })
            });
        if let Some(arena) = self.arena.as_mut().filter(|_| elsewhere) {
            arena.stale = true;
        }
    }

    /// The op begun last ran and what it made is known.
    pub fn check_outputs(&mut self, py: Python<'_>, op: OpId) {
        if let Some(step) = self.placements.first().map(|placement| placement.step) {
            self.check_places(py, op, step);
        }
        self.placements.clear();
    }

    /// A replay failed. If it ran out of memory where the engine knew all blocks, its workspace takes more than was known.
    pub(super) fn note_replay_failed(&mut self, py: Python<'_>, op: OpId, error: &PyErr) {
        let Some(arena) = self.arena.as_ref().filter(|_| is_exhausted(py, error)) else {
            return;
        };
        let was_stale = arena.stale;
        let bytes = self.note_exhausted(py, error);
        if let Some(record) = self
            .records
            .get_mut(op.index())
            .and_then(Option::as_mut)
            .filter(|_| !was_stale)
        {
            record.workspace = record.workspace.saturating_add(bytes);
            // An op that cannot be told of is refused when it is tried again.
            let _ = self.engine.set_workspace(op, Bytes(record.workspace));
        }
    }

    /// Torch got no memory for a tensor; for how many bytes.
    pub fn note_exhausted(&mut self, py: Python<'_>, error: &PyErr) -> u64 {
        let bytes = asked_for(py, error).max(crate::arena::ALIGNMENT);
        if let Some(arena) = &mut self.arena {
            arena.short_of = bytes;
            arena.stale = true;
        }
        bytes
    }

    /// `remat.BudgetError`: the arena has no block, and nothing more can be evicted.
    pub fn no_block(&self, py: Python<'_>) -> PyErr {
        let Some(arena) = &self.arena else {
            return PyRuntimeError::new_err("no arena is open");
        };
        let free = arena.statistics();
        let error = budget_error(py).and_then(|class| {
            class.call_method1(
                "of_arena",
                (
                    &self.current,
                    arena.short_of,
                    free.capacity,
                    free.free_bytes,
                    free.largest_free,
                ),
            )
        });
        match error {
            Ok(error) => PyErr::from_value(error),
            Err(error) => error,
        }
    }
}
