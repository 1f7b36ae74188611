//! Ops of planned steps that run unwatched: their results are gone again before anybody asks for them.
//!
//! They come next in a planned step and leave [no record](super::unrecorded) there. In a step before, all that they
//! made was let go of, and no op with a record had read it. The session takes no note of what they make: the allocator
//! [counts](counted) it, and before the engine is told anything else, it is told how much there is. If an op with a
//! record reads such a result after all, it becomes a constant, as all storages do that were made out of the session's
//! sight, and results are noted again.

use std::sync::Arc;

use pyo3::prelude::*;
use remat_core::Cost;

use super::forms::{Known, find};
use super::lock::Held;
use super::running::form_number;
use super::state::State;
use super::unwatched::bytes_counted_alone;
use crate::call::record::GradMode;
use crate::call::stacked::{Arity, Stacked};
use crate::ffi::caching;
use crate::ffi::counted;
use crate::ffi::dispatcher::Torch;
use crate::ffi::gil::Attach;
use crate::ffi::thread::CallClock;
use crate::tracking::live::UNTOLD;

/// A transient op that the session let run.
pub(super) struct Transient {
    /// Its form, if the cost of that is due to be measured.
    due: Option<Arc<Known>>,
}

/// A transient op that runs. The state is locked meanwhile: nothing that it reads is evicted.
pub(super) struct Passing<'a> {
    held: Held<'a>,
    transient: Transient,
    ran: bool,
}

impl<'a> Passing<'a> {
    /// An op that the session let run, under the lock.
    pub(super) fn new(held: Held<'a>, transient: Transient) -> Passing<'a> {
        Passing {
            held,
            transient,
            ran: false,
        }
    }

    /// Runs the op at an address by a function.
    #[inline]
    pub(super) fn run(&mut self, address: usize, op: impl FnOnce()) {
        let known = self.transient.due.as_ref();
        let clock = known.map(|_| CallClock::start());
        {
            let _running = counted::Running::op(address);
            op();
        }
        self.ran = true;
        if let (Some(clock), Some(known)) = (clock, known) {
            known.cost.sample(clock.nanoseconds());
        }
    }
}

impl Drop for Passing<'_> {
    fn drop(&mut self) {
        if !self.ran {
            self.held.state.executor.engine.lose_place();
        }
    }
}

impl State {
    /// Lets a call run as a transient op of a planned step, if it is one and finds room.
    ///
    /// # Safety
    /// The values that `stacked` names are alive, on the stack of the call.
    #[inline]
    pub(super) unsafe fn begin_transient(
        &mut self,
        gil: impl Attach,
        torch: &Torch,
        arity: &Arity,
        stacked: &Stacked,
    ) -> PyResult<Option<Transient>> {
        let form = form_number(stacked);
        if !arity.unwatched || !self.executor.engine.is_transient(form) {
            return Ok(None);
        }
        self.watch_for_thrashing(gil)?;
        self.executor.drain_deaths(gil)?;
        let Some(known) = find(&self.known, stacked) else {
            return Ok(None);
        };
        let usual = known.roles.updated.is_empty()
            && known.uses_statistics_alike(&stacked.numbers)
            && !(known.func.accumulates && self.is_accumulating(gil)?);
        if !usual {
            return Ok(None);
        }
        // SAFETY: as the caller promises.
        let read = unsafe { self.bytes_at_hand(torch, stacked, known) };
        let others = self.others_beside(known);
        let (Some(read), Some(others)) = (read, others) else {
            return Ok(None);
        };
        let made = known.made();
        let cost = self
            .costs
            .of_form(known.cost.nanoseconds(), read.saturating_add(made));
        let due = known.cost.is_due().then(|| known.clone());
        let (outputs, grad) = (known.outputs.len(), known.grad);
        let more = made.saturating_add(known.signature.workspace.0);
        let passed = self.executor.engine.pass(Cost(cost), outputs);
        let (_, ends) = passed.map_err(|e| self.executor.refusal(gil, &e))?;
        if ends {
            self.executor.tend_plans()?;
        }
        self.executor.note_transient(others, more);
        self.ops += 1;
        if grad == GradMode::On {
            self.executor.storages.note_forward();
        }
        Ok(Some(Transient { due }))
    }

    /// The bytes that a call reads; `None` if not all of it is there, or if the session has to know what it overwrites.
    ///
    /// # Safety
    /// As for [`Self::begin_transient`].
    unsafe fn bytes_at_hand(&self, torch: &Torch, stacked: &Stacked, known: &Known) -> Option<u64> {
        let (storages, engine) = (&self.executor.storages, &self.executor.engine);
        let mut read = 0;
        for (index, &at) in (0..).zip(&known.roles.inputs) {
            let address = stacked.storages[at as usize];
            let Some((id, tensor)) = storages.find_at(address) else {
                // SAFETY: as the caller promises.
                read += unsafe { bytes_counted_alone(torch, address)? };
                continue;
            };
            let live = storages.live(id)?;
            if !live.present || live.blank {
                return None;
            }
            read += live.bytes;
            if known.form.written.contains(&index) {
                let constant = tensor != UNTOLD
                    && engine.is_unread_constant(tensor)
                    && !engine.is_unrecorded(tensor);
                if !constant || live.outside.is_some() || live.freed {
                    return None;
                }
            }
        }
        Some(read)
    }

    /// The bytes that are there beside those that are counted where ops run unwatched; `None` if a call of this form
    /// finds no room beside both.
    fn others_beside(&self, known: &Known) -> Option<u64> {
        let executor = &self.executor;
        let may_run = self.finds_room(known)?
            && caching::counts()
            && self.may_forgo_records()
            && executor.has_room_unrecorded(known.made());
        may_run.then(|| executor.used_watched())
    }
}
