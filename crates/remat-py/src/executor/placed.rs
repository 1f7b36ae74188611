//! Memory with addresses: the engine's blocks are the allocator's. Before a decision the engine learns of blocks that
//! it does not know. The allocator keeps the blocks that the engine placed until the op asks for them.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use remat_core::{Bytes, Observed, OpId, Placement, StorageId};

use super::state::Executor;
use crate::ffi::arena::{ALIGNMENT, Arena, Fallback};
use crate::ffi::boxed::storage_bytes;
use crate::ffi::dispatcher::Torch;
use crate::ffi::errors::{budget_error, raised};
use crate::ffi::gil::Attach;
use crate::ffi::layout::{Guard, Impl};
use crate::tracking::buffers::Buffer;
use crate::tracking::devices::PLACED;
use crate::tracking::live::{Live, LiveId, UNTOLD};
use crate::tracking::owner::Owner;
use smallvec::SmallVec;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Part of torch's message when its allocator got no memory for a tensor.
const EXHAUSTED: &str = "DefaultCPUAllocator";

/// Whether torch found no memory for a tensor.
pub fn is_exhausted(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<PyRuntimeError>(py) && error.value(py).to_string().contains(EXHAUSTED)
}

/// The bytes that torch asked its allocator for, from the error's message.
fn asked_for(py: Python<'_>, error: &PyErr) -> u64 {
    let message = error.value(py).to_string();
    let asked = message.split("tried to allocate ").nth(1);
    let digits = asked.and_then(|rest| rest.split(' ').next());
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

/// Runs an action that may replay, and runs it again when a replay finds no block: by then its workspace is known
/// better.
pub fn replaying<S: AsMut<Executor>, T>(
    gil: impl Attach,
    state: &mut S,
    mut action: impl FnMut(&mut S) -> PyResult<T>,
) -> PyResult<T> {
    const ATTEMPTS: u32 = 16;
    for _ in 0..ATTEMPTS {
        state.as_mut().sync(gil)?;
        match action(state) {
            Ok(done) => return Ok(done),
            Err(error) => state.as_mut().take_exhausted(gil, error)?,
        }
    }
    gil.attach(|py| Err(state.as_mut().no_block(py)))
}

impl AsMut<Executor> for Executor {
    fn as_mut(&mut self) -> &mut Executor {
        self
    }
}

impl Executor {
    /// Tells the engine the places of all blocks, if its own list may differ.
    #[inline]
    pub fn sync(&mut self, gil: impl Attach) -> PyResult<()> {
        let (Some(arena), Some(known)) = (&mut self.arena, self.engine.arena(PLACED)) else {
            return Ok(());
        };
        let known = known.capacity() - known.free_bytes();
        if arena.in_use() != known || arena.stale {
            gil.attach(|py| self.observe(py))?;
        }
        Ok(())
    }

    /// Tells the engine the places of all blocks.
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
        let taken_in = self.engine.observe(PLACED, &observed);
        arena.stale = false;
        self.observed = observed;
        self.arena = Some(arena);
        taken_in.map_err(|e| self.refusal(py, &e))
    }

    /// Lists the engine storage whose bytes begin at each address.
    fn list_owners(&mut self, py: Python<'_>, arena: &Arena) {
        self.owners.clear();
        let layout = self.internals.layout;
        let alive = self.storages.alive(py);
        let there = |live: &Live| live.present && live.device == PLACED && live.tensor != UNTOLD;
        for (_, live) in alive.filter(|(_, live)| there(live)) {
            // SAFETY: the storage is not dying, and this loop does not release the GIL.
            let origin = unsafe { layout.origin(py, live.imp) };
            self.owners
                .insert(arena.offset(origin.data), self.storage_of(live.tensor));
        }
        for (sid, scratch) in self.storages.scratch() {
            if let Ok(imp) = scratch.owner.imp(py) {
                // SAFETY: the table's reference owns the storage.
                let origin = unsafe { layout.origin(py, imp) };
                self.owners.insert(arena.offset(origin.data), sid);
            }
        }
        // The outputs of the op that runs have their places, allocated or not.
        for placement in &self.placements {
            if let Some(sid) = self.running.and_then(|op| self.output(op, placement)) {
                self.owners.entry(placement.address).or_insert(sid);
            }
        }
    }

    fn output(&self, op: OpId, placement: &Placement) -> Option<StorageId> {
        let tensor = self.engine.outputs(op).get(placement.output as usize)?;
        Some(self.storage_of(*tensor))
    }

    /// The program is about to make a call of this [kind](crate::call::form::kind_of).
    pub fn note_called(&mut self, kind: impl FnOnce() -> u64) {
        if self.arena.is_some() {
            self.called = kind();
        }
    }

    /// Has the allocator keep the blocks that the engine placed for a step, which runs an op.
    pub(super) fn expect(&mut self, op: OpId, call: u64, step: usize) {
        let kind = self.kind_of(op, call);
        let Some(arena) = &mut self.arena else { return };
        for placement in self
            .placements
            .iter()
            .filter(|placement| placement.step == step)
        {
            let passes = self.passes.of(kind, placement.output);
            arena.expect(placement.address, placement.bytes.0, passes);
        }
    }

    /// A hash of an op by its call and the sizes of what it reads and makes.
    fn kind_of(&self, op: OpId, call: u64) -> u64 {
        let mut hasher = DefaultHasher::new();
        call.hash(&mut hasher);
        for tensors in [self.engine.inputs(op), self.engine.outputs(op)] {
            for &tensor in tensors {
                self.engine
                    .bytes(self.storage_of(tensor))
                    .0
                    .hash(&mut hasher);
            }
        }
        hasher.finish()
    }

    /// Has the allocator keep blocks for the outputs of the op that was begun and will be called now. Placements of
    /// earlier steps are forgotten.
    pub fn expect_outputs(&mut self, op: OpId, steps: usize) {
        if self.arena.is_none() {
            return;
        }
        self.placements.clear();
        let all = self.engine.placements();
        self.placements
            .extend(all.iter().filter(|placement| placement.step == steps));
        self.expect(op, self.called, steps);
    }

    /// Frees the blocks that the allocator still keeps.
    pub fn expect_no_more(&mut self) {
        if let Some(arena) = &mut self.arena {
            arena.expect_no_more();
        }
    }

    /// Copies a storage's bytes to another address of the arena, where its holders find them from then on.
    pub(super) fn move_bytes(
        &mut self,
        py: Python<'_>,
        sid: StorageId,
        address: u64,
    ) -> PyResult<()> {
        let Some((owner, bytes)) = self.owner_of(py, sid)? else {
            return Ok(()); // it died since, so its block is free
        };
        let imp = owner.imp(py)?;
        let copy = self.blank_at(py, Some(address), bytes)?;
        let new = Impl::of(&copy)?;
        let layout = self.internals.layout;
        // SAFETY: `owner` and `copy` are in scope and own the two storages. Both are of the CPU's allocator and hold
        // `bytes` bytes, and `copy` was just allocated, so they do not overlap. The engine moves no storage that a
        // running op uses, so no op reads or writes them. After the exchange both still have as many bytes as their
        // sizes say.
        let moved_to = unsafe {
            layout.copy(py, imp, new, bytes as usize);
            layout.swap(py, imp, new);
            layout.origin(py, imp).data
        };
        if let Some(arena) = &mut self.arena {
            arena.stale |= arena.offset(moved_to) != address;
        }
        Ok(())
    }

    /// A reference to the storage that holds these bytes, and how many they are. No Python object is made where that
    /// can be avoided: it would own the storage for as long as that lives, and autograd adds gradients in place only
    /// where nobody else owns them.
    fn owner_of(&self, py: Python<'_>, sid: StorageId) -> PyResult<Option<(Owner, u64)>> {
        if let (Some(torch), Some(strong)) = (Torch::get(), self.storages.strong(py, sid)?) {
            // SAFETY: the reference owns the storage.
            let bytes = unsafe { storage_bytes(torch.boxed, strong.address()) };
            return Ok(Some((Owner::Storage(strong), bytes)));
        }
        let Some(object) = self.storages.object(py, sid)? else {
            return Ok(None);
        };
        let bytes = object.call_method0(pyo3::intern!(py, "nbytes"))?;
        let bytes = bytes.extract()?;
        Ok(Some((Owner::Object(object.into_parts().0.into()), bytes)))
    }

    /// Takes the bytes of a blank storage away: the op that fills it has a block of its own. Whether the storage lies
    /// in the arena, and so lost them.
    pub fn lift_blank(&mut self, py: Python<'_>, id: LiveId) -> PyResult<bool> {
        let (Some(arena), Some(pool)) = (&self.arena, self.engine.arena(PLACED)) else {
            return Ok(false);
        };
        let live = self.storages.live(id);
        let Some(live) = live.filter(|live| live.present && live.outside.is_none()) else {
            return Ok(false);
        };
        let (imp, layout) = (live.imp, self.internals.layout);
        let Some(kept) = live.keep(py)? else {
            return Ok(false);
        };
        // SAFETY: `kept` owns the storage. Nothing was written to its bytes, so nobody reads them, and no op runs that
        // writes to them. The guard goes up before anybody can reach for the bytes that the size promises.
        let lifted = unsafe {
            let inside = arena.offset(layout.origin(py, imp).data) < pool.capacity();
            if inside {
                layout.set_guard(py, imp, Guard::Up);
                layout.free(py, imp);
            }
            inside
        };
        drop(kept);
        Ok(lifted)
    }

    /// Gives a blank storage bytes again that were taken away: those at the place of the first output of the op begun
    /// last.
    pub fn place_blank(&mut self, py: Python<'_>, id: LiveId) -> PyResult<()> {
        let step = self.engine.steps().len();
        let mut placements = self.engine.placements().iter();
        let place = placements.find(|place| (place.step, place.output) == (step, 0));
        let place = place.map(|place| place.address);
        self.give_blank_bytes(py, id, place)
    }

    /// Gives a blank storage bytes again that were taken away, wherever there are any: the op that was to fill it did
    /// not run.
    pub fn restore_blank(&mut self, py: Python<'_>, id: LiveId) -> PyResult<()> {
        self.set_fallback(Fallback::System);
        let given = self.give_blank_bytes(py, id, None);
        self.set_fallback(Fallback::Nobody);
        given
    }

    /// A storage of so many bytes, which nobody has written, at an address of the arena or anywhere.
    fn blank_at<'py>(
        &mut self,
        py: Python<'py>,
        address: Option<u64>,
        bytes: u64,
    ) -> PyResult<Bound<'py, PyAny>> {
        if let (Some(arena), Some(address)) = (&mut self.arena, address) {
            arena.expect(address, bytes, 0);
        }
        let device = &self.devices[usize::from(PLACED.0)].device;
        let made = self.internals.blank_storage.bind(py).call1((device, bytes));
        self.expect_no_more();
        made
    }

    fn give_blank_bytes(&mut self, py: Python<'_>, id: LiveId, place: Option<u64>) -> PyResult<()> {
        let Some(live) = self.storages.live(id) else {
            return Ok(());
        };
        let (imp, bytes) = (live.imp, live.bytes);
        let Some(kept) = live.keep(py)? else {
            return Ok(());
        };
        let made = self.blank_at(py, place, bytes)?;
        let new = Impl::of(&made)?;
        let layout = self.internals.layout;
        // SAFETY: `kept` and `made` own the two storages, which no op reads or writes. The first has no bytes, and gets
        // as many as its size says, so its guard may go down.
        let data = unsafe {
            layout.swap(py, imp, new);
            layout.set_guard(py, imp, Guard::Down);
            layout.origin(py, imp).data
        };
        drop(kept);
        if let Some(arena) = &mut self.arena {
            arena.stale |= place != Some(arena.offset(data));
        }
        Ok(())
    }

    /// Says who serves allocations for which the arena has no room.
    pub(super) fn set_fallback(&self, fallback: Fallback) {
        if let Some(arena) = &self.arena {
            arena.set_fallback(fallback);
        }
    }

    /// Notes whether outputs of an op that was just replayed lie elsewhere than was planned.
    pub(super) fn check_places(&mut self, py: Python<'_>, op: OpId, call: u64, step: usize) {
        let place =
            |executor: &Executor, placement: &Placement| executor.output_place(py, op, placement);
        self.compare_places(op, call, step, place);
    }

    /// Notes whether outputs of an op that just ran lie elsewhere than was planned. `place` tells the address of one.
    fn compare_places(
        &mut self,
        op: OpId,
        call: u64,
        step: usize,
        place: impl Fn(&Executor, &Placement) -> Option<usize>,
    ) {
        let Some(arena) = &self.arena else { return };
        let elsewhere = |placement: &Placement| {
            let place = place(self, placement).filter(|_| placement.step == step);
            let offset = place.map(|data| arena.offset(data))?;
            let seen = || arena.passes(offset, placement.bytes.0);
            (offset != placement.address).then(|| (placement.output, seen()))
        };
        let elsewhere = self.placements.iter().filter_map(elsewhere);
        let elsewhere: SmallVec<[(u32, Result<u32, u32>); 2]> = elsewhere.collect();
        if elsewhere.is_empty() {
            return;
        }
        let kind = self.kind_of(op, call);
        for (output, seen) in elsewhere {
            self.passes.missed(kind, output, seen);
        }
        if let Some(arena) = &mut self.arena {
            arena.stale = true;
        }
    }

    /// The address of an output's bytes, if they are in memory.
    fn output_place(&self, py: Python<'_>, op: OpId, placement: &Placement) -> Option<usize> {
        let imp = match self.storages.buffer(self.output(op, placement)?) {
            Buffer::Live(id) => {
                let live = self.storages.live(*id).filter(|live| live.present)?;
                live.is_alive(py).then_some(live.imp)?
            }
            Buffer::Scratch(scratch) => scratch.owner.imp(py).ok()?,
            Buffer::Empty => return None,
        };
        // SAFETY: a live storage is not dying, and the GIL was not released since; a scratch storage is owned by the
        // table's reference.
        Some(unsafe { self.internals.layout.origin(py, imp) }.data)
    }

    /// Compares the places of the outputs of the op begun last, once it ran, with the planned ones.
    pub fn check_outputs(&mut self, py: Python<'_>, op: OpId) {
        let place =
            |executor: &Executor, placement: &Placement| executor.output_place(py, op, placement);
        self.compare_outputs(op, place);
    }

    /// The same where `address` tells the places of outputs, by their indices.
    pub fn check_outputs_at(&mut self, op: OpId, address: impl Fn(u32) -> Option<usize>) {
        self.compare_outputs(op, |_, placement| address(placement.output));
    }

    fn compare_outputs(
        &mut self,
        op: OpId,
        place: impl Fn(&Executor, &Placement) -> Option<usize>,
    ) {
        self.expect_no_more();
        if let Some(step) = self.placements.first().map(|placement| placement.step) {
            self.compare_places(op, self.called, step, place);
        }
        self.placements.clear();
    }

    /// Learns from a replay that failed. If it ran out of memory although the engine knew all blocks, its workspace is
    /// larger than was known.
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
            // An op that the engine does not know is refused when it is tried again.
            let _ = self.engine.set_workspace(op, Bytes(record.workspace));
        }
    }

    /// Takes an error that says that torch got no memory for a tensor, in an arena. It is noted.
    ///
    /// # Errors
    /// Any other error.
    pub fn take_exhausted(&mut self, gil: impl Attach, error: PyErr) -> PyResult<()> {
        if self.arena.is_none() {
            return Err(error);
        }
        gil.attach(|py| {
            if !is_exhausted(py, &error) {
                return Err(error);
            }
            self.note_exhausted(py, &error);
            Ok(())
        })
    }

    /// Notes that torch got no memory for a tensor; returns for how many bytes.
    pub fn note_exhausted(&mut self, py: Python<'_>, error: &PyErr) -> u64 {
        let bytes = asked_for(py, error).max(ALIGNMENT);
        if let Some(arena) = &mut self.arena {
            arena.short_of = bytes;
            arena.stale = true;
        }
        bytes
    }

    /// A `remat.BudgetError` that says that the arena has no block and nothing more can be evicted.
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
        raised(error)
    }
}
