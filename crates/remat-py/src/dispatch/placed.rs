//! An op in an arena: its outputs lie at the places that the engine chose, and it is tried again if it found no room.

use pyo3::prelude::*;
use remat_core::{Bytes, OpId, OpSpec};

use super::evictor;
use super::forms::Known;
use super::raising::raise;
use super::state::State;
use crate::call::func::Func;
use crate::call::signature::Signature;
use crate::executor::{is_exhausted, replaying};
use crate::ffi::arena::Arena;
use crate::ffi::boxed::Stack;
use crate::ffi::caught;
use crate::ffi::dispatcher::{Op, Torch};
use crate::ffi::errors::remat_error;
use crate::ffi::gil::{Attach, Gil, OnDemand};
use crate::tracking::devices::PLACED;

/// Blocks below this part of the arena are left to the system where the engine did not place them, but none above
/// [`LARGEST_SMALL_BLOCK`]: oneDNN caches blocks (512 bytes to 32 KiB) for as long as the program runs.
const SMALL_PART: u64 = 512;
const LARGEST_SMALL_BLOCK: u64 = 33 << 10;

/// Runs of an op that finds no room in the arena; before each, more is evicted.
pub(super) const ATTEMPTS: u32 = 8;

/// How a native call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// It has its results.
    Ran,
    /// It found no room in the arena.
    NoRoom,
}

impl State {
    /// Starts placing tensors in the arena that is open.
    pub(super) fn enter_arena(&mut self, py: Python<'_>, bytes: u64) -> PyResult<()> {
        let executor = &mut self.executor;
        executor.arena = Arena::open();
        let Some(arena) = &executor.arena else {
            return Err(remat_error(
                py,
                "no arena is open: the allocator is not preloaded",
            ));
        };
        arena.set_evictor(Some(evictor::make_room));
        arena.set_small_block_limit((bytes / SMALL_PART).min(LARGEST_SMALL_BLOCK));
        executor
            .engine
            .set_budget(PLACED, Some(Bytes(bytes)))
            .map_err(|e| executor.refusal(py, &e))
    }

    /// Stops placing tensors in the arena.
    pub(super) fn leave_arena(&mut self) {
        if let Some(arena) = self.executor.arena.take() {
            arena.set_evictor(None);
            arena.set_small_block_limit(0);
        }
    }

    /// Announces an op, performs the engine's steps and keeps blocks for the op's outputs.
    pub(super) fn begin_placed(&mut self, gil: impl Attach, spec: &OpSpec<'_>) -> PyResult<OpId> {
        self.executor.expect_no_more();
        let op = replaying(gil, self, |state| state.begin_counted(gil, spec))?;
        self.executor
            .expect_outputs(op, self.executor.engine.steps().len());
        Ok(op)
    }

    /// Announces an op that fills a storage which exists already, although the engine takes its block for free.
    pub(super) fn begin_in_place(&mut self, gil: impl Attach, spec: &OpSpec<'_>) -> PyResult<OpId> {
        self.executor.expect_no_more();
        match self.begin_counted(gil, spec) {
            Ok(op) => Ok(op),
            Err(error) => {
                self.executor.take_exhausted(gil, error)?;
                replaying(gil, self, |state| state.begin_counted(gil, spec))
            }
        }
    }

    /// Runs an op of a known form that was announced, natively. If the arena is exhausted meanwhile, the thread that
    /// allocates may evict.
    ///
    /// Errors unwind, but for that it found no room.
    ///
    /// # Safety
    /// As for [`Dispatcher::next`](crate::ffi::dispatcher::Dispatcher::next), and [`caught::set_up`] succeeded.
    pub(super) unsafe fn run_placed(
        &mut self,
        torch: &Torch,
        op: *const Op,
        keys: u64,
        stack: *mut Stack,
    ) -> Ended {
        let (kernel, keys) = (torch.dispatcher.kernel(), torch.dispatcher.below(keys));
        let ran = self.lending(OnDemand, || {
            // SAFETY: as the caller promises.
            unsafe { caught::call(kernel, op, keys, stack) }
        });
        self.executor.expect_no_more();
        let Err(exception) = ran else {
            return Ended::Ran;
        };
        let refused = self.executor.arena.as_ref().is_some_and(Arena::has_refused);
        if !refused {
            exception.resume()
        }
        let Some(error) = Gil::with(|py| exception.into_error(py)) else {
            return Ended::NoRoom; // the interpreter has ended
        };
        match self.executor.take_exhausted(OnDemand, error) {
            Ok(()) => Ended::NoRoom,
            // SAFETY: the caller's own arguments are all that is in use.
            Err(error) => unsafe { raise(torch, error) },
        }
    }

    /// Bytes in use in the arena before an op that is to be measured. Its peak starts anew here.
    pub(super) fn start_measuring(&mut self) -> Option<Bytes> {
        let arena = self.executor.arena.as_mut()?;
        arena.restart_peak();
        arena.evicted_inside = 0;
        Some(Bytes(arena.statistics().in_use))
    }

    /// The workspace of the op that ran since the measurement started: the peak of its bytes beyond those it left.
    pub(super) fn workspace_since(&mut self, in_use_before: Bytes) -> u64 {
        // What was kept and not taken is nothing that the op leaves.
        self.executor.expect_no_more();
        let Some(arena) = &self.executor.arena else {
            return 0;
        };
        let now = arena.statistics();
        // Evictions for the op made room that the two numbers do not show.
        let begun = in_use_before.0.saturating_sub(arena.evicted_inside);
        let left = now.in_use.max(begun);
        now.high_water.saturating_sub(left)
    }

    /// The bytes side by side that the temporaries of the op need which ran since the measurement started. The places
    /// of its results are no room for them: the first run may have had some there, and the next ones do not.
    pub(super) fn span_of_temporaries(&mut self) -> u64 {
        let arena = self.executor.arena.as_mut();
        arena.map_or(0, Arena::span_of_temporaries)
    }

    /// Learns from an op that found no memory for a tensor: its workspace is larger than was known. Returns whether
    /// that was the reason of the error.
    pub(super) fn learn_from(
        &mut self,
        py: Python<'_>,
        error: &PyErr,
        signature: &mut Signature,
    ) -> bool {
        let in_use_before = self.in_use_before.take();
        if self.executor.arena.is_none()
            || signature.workspace_device != PLACED
            || !is_exhausted(py, error)
        {
            return false;
        }
        let bytes = self.executor.note_exhausted(py, error);
        let seen = match in_use_before {
            Some(before) => self.workspace_since(before),
            None => 0,
        };
        let known = signature.workspace.0.max(seen);
        signature.workspace = Bytes(known.saturating_add(bytes));
        true
    }
}

/// Whether an op can be run once more after it failed.
pub(super) fn repeatable(func: &Func, written: &[u32]) -> bool {
    !func.random && written.is_empty()
}

/// The same for a call of a known form. One that fills blank memory writes it, though to the engine that is its result.
pub(super) fn known_is_repeatable(known: &Known) -> bool {
    known.roles.filled.is_none() && repeatable(&known.func, &known.form.written)
}
