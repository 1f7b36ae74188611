//! Ops of planned steps that run unwatched: their results are gone again before anybody asks for them.
//!
//! They come next in a planned step and leave [no record](super::unrecorded) there. In a step before, all that they
//! made was let go of, and no op with a record had read it. The session takes no note of what they make: the allocator
//! [counts](counted) it, and before the engine is told anything else, it is told how much there is. If an op with a
//! record reads such a result after all, it becomes a constant, as all storages do that were made out of the session's
//! sight, and results are noted again.

use pyo3::prelude::*;
use remat_core::Cost;

use super::forms::Known;
use super::state::State;
use super::unwatched::bytes_counted_alone;
use crate::call::pass::OnStack;
use crate::call::record::GradMode;
use crate::ffi::caching;
use crate::ffi::counted;
use crate::ffi::dispatcher::Torch;
use crate::ffi::gil::Attach;
use crate::ffi::thread::CallClock;
use crate::tracking::live::UNTOLD;

/// A transient op that runs. If it raises an error, the program is not where the plan has it.
struct Passing<'a> {
    state: &'a mut State,
    ran: bool,
}

impl Drop for Passing<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.ran {
            self.state.executor.engine.lose_place();
        }
    }
}

impl State {
    /// Runs a call of the op at an address by a function, if it is the transient op that comes next in a planned step
    /// and finds room. Returns whether it ran. The state is locked meanwhile: nothing that the op reads is evicted.
    ///
    /// # Safety
    /// As for [`OnStack::pass`]. The function may unwind.
    pub(super) unsafe fn run_if_transient(
        &mut self,
        gil: impl Attach,
        call: &OnStack<'_>,
        address: usize,
        op: impl FnOnce(),
    ) -> PyResult<bool> {
        let Some(form) = self.executor.engine.next_transient() else {
            return Ok(false);
        };
        if !call.arity.schema.unwatched {
            return Ok(false);
        }
        self.watch_for_thrashing(gil)?;
        self.executor.drain_deaths(gil)?;
        let Some(known) = self.known.get(&form) else {
            return Ok(false);
        };
        // SAFETY: as the caller promises.
        let Some(storages) = (unsafe { call.storages_if(&known.words) }) else {
            return Ok(false);
        };
        let usual = known.roles.updated.is_empty()
            && known.zeros.is_none()
            && !(known.func.accumulates && self.is_accumulating(gil)?);
        if !usual {
            return Ok(false);
        }
        // SAFETY: as the caller promises.
        let read = unsafe { self.bytes_at_hand(call.torch, &storages, known) };
        let others = self.others_beside(known);
        let (Some(read), Some(others)) = (read, others) else {
            return Ok(false);
        };
        let made = known.takes.made;
        let cost = self
            .costs
            .of_form(known.cost.nanoseconds(), read.saturating_add(made));
        let due = known.cost.is_due().then(|| known.clone());
        let (outputs, grad) = (known.outputs.len(), known.grad);
        let more = made.saturating_add(known.signature.workspace.0);
        let passed = self.executor.engine.pass(Cost(cost), outputs);
        let (_, ends) = passed.map_err(|e| self.executor.refusal(gil, &e))?;
        if ends {
            self.executor.tend_plans();
        }
        self.executor.note_transient(others, more);
        self.ops += 1;
        if grad == GradMode::On {
            self.executor.storages.note_forward();
        }
        let clock = due.as_ref().map(|_| CallClock::start());
        let mut passing = Passing {
            state: self,
            ran: false,
        };
        {
            let _running = counted::Running::op(address);
            op();
        }
        passing.ran = true;
        if let (Some(clock), Some(known)) = (clock, due) {
            known.cost.sample(clock.nanoseconds());
        }
        Ok(true)
    }

    /// The bytes that a call reads; `None` if not all of it is there, or if the session has to know what it overwrites.
    ///
    /// # Safety
    /// As for [`Self::run_if_transient`].
    unsafe fn bytes_at_hand(
        &self,
        torch: &Torch,
        storages_read: &[usize],
        known: &Known,
    ) -> Option<u64> {
        let (storages, engine) = (&self.executor.storages, &self.executor.engine);
        let mut read = 0;
        for (index, &at) in (0..).zip(&known.roles.inputs) {
            let address = storages_read[at as usize];
            // SAFETY: as the caller promises.
            if let Some(bytes) = unsafe { bytes_counted_alone(torch, address) } {
                read += bytes;
                continue;
            }
            let (id, tensor) = storages.find_at(address)?;
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
        let others = executor.used_watched();
        let may_run = self.finds_room(known, others)?
            && caching::counts()
            && self.may_forgo_records()
            && executor.has_room_unrecorded(known.takes.made);
        may_run.then_some(others)
    }
}
