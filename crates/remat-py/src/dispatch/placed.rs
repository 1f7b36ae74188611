//! An op in an arena: its outputs lie where the engine placed them, and it is tried again where it found no room.

use pyo3::prelude::*;
use remat_core::{Bytes, OpId, OpSpec, PoolId};

use super::State;
use crate::arena::Arena;
use crate::arguments::Walk;
use crate::core_state::{is_exhausted, replaying, CoreState, PLACED};
use crate::func::Func;
use crate::signature::Signature;

/// A block of this part of the arena or less is left to the system where no op is known to make it, up to so many bytes: what oneDNN
/// caches (512 bytes to 32 KiB) stays as long as the program runs.
const CRUMBS: u64 = 512;
const LARGEST_CRUMB: u64 = 33 << 10;

/// What the allocator had before an op.
#[derive(Clone, Copy)]
pub(super) struct Before {
    in_use: u64,
}

impl AsMut<CoreState> for State {
    fn as_mut(&mut self) -> &mut CoreState {
        &mut self.core
    }
}

impl State {
    pub(super) fn enter_arena(&mut self, py: Python<'_>, bytes: u64) -> PyResult<()> {
        let core = &mut self.core;
        core.arena = Arena::open();
        let Some(arena) = &core.arena else {
            return Err(super::remat_error(
                py,
                "no arena is open: the allocator is not preloaded",
            ));
        };
        arena.set_evictor(Some(super::evictor::make_room));
        arena.leave_crumbs((bytes / CRUMBS).min(LARGEST_CRUMB));
        core.engine
            .set_budget(PLACED, Some(Bytes(bytes)))
            .map_err(|e| core.refusal(py, &e))
    }

    pub(super) fn leave_arena(&mut self) {
        self.arena_peak = self.high_water();
        if let Some(arena) = self.core.arena.take() {
            arena.set_evictor(None);
            arena.leave_crumbs(0);
        }
    }

    /// The most bytes of the arena that were in use at a time.
    pub(super) fn high_water(&self) -> u64 {
        let arena = self.core.arena.as_ref();
        arena.map_or(self.arena_peak, Arena::high_water)
    }

    /// Announces an op, performs what must come first and keeps blocks for what it makes.
    pub(super) fn begin_placed(&mut self, py: Python<'_>, spec: &OpSpec<'_>) -> PyResult<OpId> {
        self.core.expect_no_more();
        let op = replaying(py, self, |state| state.begin_counted(py, spec))?;
        self.core.expect_outputs(self.core.engine.steps().len());
        Ok(op)
    }

    /// Announces an op that fills a storage which is there already: the engine thinks its block free.
    pub(super) fn begin_filled(&mut self, py: Python<'_>, spec: &OpSpec<'_>) -> PyResult<OpId> {
        self.core.expect_no_more();
        match self.begin_counted(py, spec) {
            Err(e) if self.core.arena.is_some() && is_exhausted(py, &e) => {
                self.core.note_exhausted(py, &e);
                replaying(py, self, |state| state.begin_counted(py, spec))
            }
            begun => begun,
        }
    }

    /// Looks at the allocator before an op that is to be measured.
    pub(super) fn look(&mut self) -> Option<Before> {
        let arena = self.core.arena.as_mut()?;
        arena.restart_peak();
        arena.evicted_inside = 0;
        Some(Before {
            in_use: arena.statistics().in_use,
        })
    }

    /// The workspace of the op that ran since: the peak of what it took beyond what it left.
    pub(super) fn workspace_since(&mut self, before: &Before) -> u64 {
        let Some(arena) = &self.core.arena else {
            return 0;
        };
        let now = arena.statistics();
        // What was evicted for it made room that does not show.
        let begun = before.in_use.saturating_sub(arena.evicted_inside);
        let left = now.in_use.max(begun);
        now.high_water.saturating_sub(left)
    }
}

/// Whether an op can be run once more after it failed.
pub(super) fn repeatable(func: &Func, walked: &Walk) -> bool {
    !func.random && walked.written.is_empty()
}

impl State {
    /// An op found no memory for a tensor. What it takes is known better now; if it can be run again, it is to be.
    pub(super) fn learn_from(
        &mut self,
        py: Python<'_>,
        error: &PyErr,
        signature: &mut Signature,
    ) -> bool {
        if self.core.arena.is_none()
            || signature.workspace_pool != PoolId(0)
            || !is_exhausted(py, error)
        {
            return false;
        }
        let bytes = self.core.note_exhausted(py, error);
        let seen = match self.before.take() {
            Some(before) => self.workspace_since(&before),
            None => 0,
        };
        let known = signature.workspace.0.max(seen);
        signature.workspace = Bytes(known.saturating_add(bytes));
        true
    }
}
