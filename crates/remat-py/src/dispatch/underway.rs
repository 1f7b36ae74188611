//! An op that came natively, from its announcement until its results were taken in.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use super::lock::Held;
use super::placed::{Ended, known_is_repeatable};
use super::running::Begun;
use crate::call::arity::Arity;
use crate::call::stacked::Stacked;
use crate::ffi::boxed::{Stack, Value};
use crate::ffi::dispatcher::{Op, Torch};
use crate::ffi::errors::error_aside;
use crate::ffi::gil::{Attach, Gil};
use crate::ffi::owned::Arguments;
use crate::ffi::thread::CallClock;

/// The op that runs, told to the engine as not run if torch raises.
pub(super) struct Underway<'a> {
    held: Option<Held<'a>>,
    begun: Option<Begun>,
}

impl<'a> Underway<'a> {
    /// An op that was announced, under the lock.
    pub(super) fn new(held: Held<'a>, begun: Begun) -> Underway<'a> {
        Underway {
            held: Some(held),
            begun: Some(begun),
        }
    }
    /// Starts to measure the call, if the cost of its form is due.
    pub(super) fn start_measuring(&self) -> Option<CallClock> {
        let known = self.begun.as_ref()?.known();
        known.cost.is_due().then(CallClock::start)
    }

    /// Takes in how much the call takes.
    pub(super) fn note_taken(&self, arity: &Arity) {
        if let Some(begun) = &self.begun {
            arity.seen.note_taken(begun.known().takes.all);
        }
    }

    /// The arguments of a call in an arena, which is made again through Python if it finds no room.
    ///
    /// # Safety
    /// As for [`Arguments::of`].
    #[inline]
    pub(super) unsafe fn arguments(
        &self,
        torch: &Torch,
        stack: &Stack,
        arity: &Arity,
    ) -> Option<Arguments> {
        let (held, begun) = (self.held.as_ref()?, self.begun.as_ref()?);
        if held.state.executor.arena.is_none() || !known_is_repeatable(begun.known()) {
            return None;
        }
        // SAFETY: as the caller promises.
        unsafe { Arguments::of(torch.boxed, stack, arity.schema.arguments) }
    }

    /// Runs the call.
    ///
    /// # Safety
    /// As for [`Dispatcher::next`].
    #[inline]
    pub(super) unsafe fn run(
        &mut self,
        torch: &Torch,
        op: *const Op,
        keys: u64,
        stack: *mut Stack,
    ) -> Ended {
        // SAFETY: as the caller promises.
        unsafe {
            match &mut self.held {
                Some(held) if held.state.executor.arena.is_some() => {
                    held.state.run_placed(torch, op, keys, stack)
                }
                _ => {
                    torch.dispatcher.next(op, keys, stack);
                    Ended::Ran
                }
            }
        }
    }

    /// Takes a call back that found no room and cannot be made again. The error that tells so.
    pub(super) fn refuse(self) -> PyErr {
        let held = self.held.as_ref();
        let refusal = held.and_then(|held| Gil::with(|py| held.state.executor.no_block(py)));
        refusal.unwrap_or_else(|| PyRuntimeError::new_err("remat: the interpreter has ended"))
    }

    /// The call has run.
    pub(super) fn measure(&self, clock: &CallClock) {
        if let Some(begun) = &self.begun {
            begun.known().cost.sample(clock.nanoseconds());
        }
    }

    /// Takes in the results of the call.
    ///
    /// # Safety
    /// The results are alive.
    pub(super) unsafe fn take_in(
        &mut self,
        torch: &Torch,
        gil: impl Attach,
        results: &[Value],
        stacked: &Stacked,
    ) -> PyResult<()> {
        let (Some(held), Some(begun)) = (&mut self.held, self.begun.take()) else {
            return Ok(());
        };
        let state = &mut held.state;
        // SAFETY: as the caller promises; the tensors that the call wrote to are kept until it is taken in.
        let taken_in = unsafe {
            match begun {
                Begun::Told(running) => state.finish_known(gil, torch, running, results, stacked),
                Begun::Unrecorded(known, number) => {
                    state.finish_unrecorded(gil, torch, &known, number, results, stacked)
                }
            }
        };
        state.executor.ended(gil, taken_in)
    }
}

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        match (self.held.take(), self.begun.take()) {
            (Some(mut held), Some(Begun::Told(running))) => {
                // The error that is on its way tells more than one of taking the op back.
                let _ = Gil::with(|py| error_aside(py, || held.state.take_back(py, &running)));
            }
            (Some(mut held), Some(Begun::Unrecorded(..))) => {
                held.state.executor.engine.lose_place();
            }
            _ => {}
        }
    }
}
