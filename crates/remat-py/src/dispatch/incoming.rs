//! Ops that come natively: announced, run and taken in.

use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering;

use pyo3::prelude::*;

use super::forms::Candidate;
use super::lock::Held;
use super::native::{Native, Place};
use super::placed::Ended;
use super::raising::raise;
use super::underway::Underway;
use super::unwatched;
use super::watch_clock::Watch;
use crate::call::arity::Arity;
use crate::call::invocation::Surroundings;
use crate::call::pass::OnStack;
use crate::call::stacked::{Stacked, keeps_tensors};
use crate::call::template::Dispatched;
use crate::ffi::autocast::Autocast;
use crate::ffi::boxed::{Stack, Value};
use crate::ffi::counted;
use crate::ffi::dispatcher::{Op, Torch};
use crate::ffi::gil::{Attach, Gil, OnDemand};
use crate::ffi::owned::Arguments;

thread_local! {
    static HANDED: RefCell<Option<Handed>> = const { RefCell::new(None) };
    static STACKED: Cell<Option<Box<Stacked>>> = const { Cell::new(None) };
}

/// A call that was handed to Python.
pub(super) struct Handed {
    /// The name of its op, as Python has it.
    name: String,
    /// The description of its op.
    pub(super) arity: &'static Arity,
    /// The form that may become known, if its arguments allow that.
    pub(super) candidate: Option<Candidate>,
    /// How it came.
    pub(super) surroundings: Surroundings,
}

/// The call of an op of this name that is on its way through Python on this thread. While Python makes the arguments of
/// one, objects may end whose finalizers call others.
pub(super) fn take_handed(name: &str) -> Option<Handed> {
    HANDED.with_borrow_mut(|handed| handed.take_if(|handed| handed.name == name))
}

/// A call of an op that the session is to know of: the dispatcher's own arguments, and the op's description. The
/// fallback's key is excluded.
pub(super) struct Incoming<'a> {
    pub(super) native: &'a Native,
    pub(super) torch: &'a Torch,
    pub(super) arity: &'static Arity,
    pub(super) op: *const Op,
    pub(super) keys: u64,
    pub(super) stack: *mut Stack,
}

/// The way of a call.
enum Way<'a> {
    /// To be run unwatched.
    Unwatched,
    /// Announced, and still to run.
    Announced(Underway<'a>),
    /// Its form is not known, and may become so.
    Python(Option<Candidate>),
    /// It is none of the session's business: a tensor has no memory of its own or is dispatched by Python, or the
    /// session itself calls, amid another op on this thread.
    Aside,
}

/// Left to do with a call when the session is done with it.
enum Left {
    Nothing,
    /// To run it.
    Run,
    /// To run it unwatched.
    RunUnwatched,
    /// To hand it to Python; with these arguments, if it ran and found no room.
    Python(Option<Box<Arguments>>),
}

impl Incoming<'_> {
    /// Tells the session of the call, and runs it.
    ///
    /// # Safety
    /// The dispatcher's own arguments; the key is excluded.
    pub(super) unsafe fn pass(self) {
        let (native, torch) = (self.native, self.torch);
        // SAFETY: as the caller promises.
        let Some(expected) = (unsafe { self.expected() }) else {
            // SAFETY: as the caller promises.
            return unsafe { self.run_unwatched() };
        };
        let mut watch = native.lock.watch.start();
        let mut stacked = STACKED.take().unwrap_or_default();
        // SAFETY: as the caller promises.
        let left = unsafe { self.tell(expected, &mut stacked, &mut watch) };
        stacked.let_go();
        STACKED.set(Some(stacked));
        drop(watch);
        // SAFETY: as the caller promises. Nothing is in use when an error is raised.
        unsafe {
            match left {
                Ok(Left::Nothing) => {}
                Ok(Left::Run) => torch.dispatcher.next(self.op, self.keys, self.stack),
                Ok(Left::RunUnwatched) => self.run_unwatched(),
                Ok(Left::Python(arguments)) => {
                    if let Some(arguments) = arguments {
                        arguments.put_back(torch.boxed, &mut *self.stack);
                    }
                    native.through_python(Place::Top, torch, self.op, self.keys, self.stack)
                }
                Err(error) => raise(torch, error),
            }
        }
    }

    /// The arguments.
    ///
    /// # Safety
    /// The kernel has not run, and the arguments are not in use elsewhere.
    #[inline]
    unsafe fn values(&self) -> &[Value] {
        // SAFETY: the arguments are the last values on the stack, which nobody changes before the kernel runs.
        unsafe {
            (*self.stack)
                .last(self.arity.schema.arguments)
                .unwrap_or(&[])
        }
    }

    /// The state, locked, and the arguments with what describes them; `None` if the session itself calls, amid another
    /// op on this thread.
    ///
    /// # Safety
    /// As for [`Self::values`].
    #[inline]
    unsafe fn enter(&self, gil: impl Attach) -> PyResult<Option<(Held<'_>, OnStack<'_>)>> {
        let Some(mut held) = self.native.lock.enter_anyhow(gil)? else {
            return Ok(None);
        };
        let settings = &mut held.state.executor.global_state;
        let state = settings.current(gil, Autocast::current())?;
        let grad = u64::from(self.torch.dispatcher.grad_enabled());
        // SAFETY: the dispatcher passed the op to the fallback; for the rest, as the caller promises.
        let (id, values) = unsafe { ((*self.op).id() as u64, self.values()) };
        let call = OnStack {
            torch: self.torch,
            arity: self.arity,
            values,
            seed: id << 1 | grad,
            state,
        };
        Ok(Some((held, call)))
    }

    /// The most bytes that the call is expected to take; `None` if it is to run unwatched, as those before it.
    ///
    /// # Safety
    /// As for [`Self::values`].
    #[inline]
    unsafe fn expected(&self) -> Option<u64> {
        let mut expected = u64::MAX;
        if self.arity.schema.unwatched && unwatched::is_possible() {
            // SAFETY: as the caller promises.
            let inputs = unsafe { unwatched::look(self.torch, self.values()) };
            if inputs.are_usual(self.arity) {
                expected = unwatched::expected(self.arity);
                if inputs.counted && counted::is_on() && counted::has_room(expected) {
                    return None;
                }
            }
            self.arity.seen.note_read(inputs.bytes);
        }
        Some(expected)
    }

    /// Runs the call unwatched.
    ///
    /// # Safety
    /// As for [`Self::pass`].
    #[inline]
    unsafe fn run_unwatched(&self) {
        self.native.lock.unwatched.fetch_add(1, Ordering::Relaxed);
        let _running = counted::Running::op(self.op as usize);
        // SAFETY: as the caller promises.
        unsafe { self.torch.dispatcher.next(self.op, self.keys, self.stack) }
    }

    /// Tells the session of the call, and runs it if its form is known.
    ///
    /// # Safety
    /// As for [`Self::pass`].
    #[inline]
    unsafe fn tell(
        &self,
        expected: u64,
        stacked: &mut Stacked,
        watch: &mut Watch<'_>,
    ) -> PyResult<Left> {
        // Where arguments can be kept alive without Python, the GIL is taken only where something is new.
        let keeps = keeps_tensors();
        let way = if keeps {
            // SAFETY: as the caller promises.
            unsafe {
                let Some((mut held, call)) = self.enter(OnDemand)? else {
                    return Ok(Left::Run);
                };
                if self.run_if_transient(&mut held, &call, watch)? {
                    return Ok(Left::Nothing);
                }
                self.announce(OnDemand, held, &call, expected, stacked, watch)?
            }
        } else {
            // SAFETY: as the caller promises.
            let way = Gil::with(|py| unsafe {
                match self.enter(py)? {
                    Some((held, call)) => self.announce(py, held, &call, expected, stacked, watch),
                    None => Ok(Way::Aside),
                }
            });
            way.unwrap_or(Ok(Way::Aside))?
        };
        match way {
            // SAFETY: as the caller promises.
            Way::Announced(underway) => unsafe { self.run(underway, keeps, stacked, watch) },
            Way::Python(candidate) => {
                self.hand(candidate);
                Ok(Left::Python(None))
            }
            Way::Unwatched => Ok(Left::RunUnwatched),
            Way::Aside => Ok(Left::Run),
        }
    }

    /// Notes that the call is handed to Python. Its form may become known there.
    fn hand(&self, candidate: Option<Candidate>) {
        HANDED.set(Some(Handed {
            // SAFETY: the dispatcher passed the op to the fallback.
            name: unsafe { (*self.op).name_in_python() },
            arity: self.arity,
            candidate,
            surroundings: Surroundings::of(self.torch.dispatcher),
        }));
    }

    /// Announces the call if its form is known, or is by its family. It may run unwatched if there is room for what it
    /// is expected to take.
    ///
    /// # Safety
    /// As for [`Self::values`].
    unsafe fn announce<'a>(
        &self,
        gil: impl Attach,
        mut held: Held<'a>,
        call: &OnStack<'_>,
        expected: u64,
        stacked: &mut Stacked,
        watch: &mut Watch<'_>,
    ) -> PyResult<Way<'a>> {
        let (torch, arity) = (self.torch, self.arity);
        let state = &mut held.state;
        // SAFETY: as the caller promises.
        if unsafe { !stacked.pass(call) } {
            return Ok(if stacked.aside {
                Way::Aside
            } else {
                Way::Python(None)
            });
        }
        let candidate = |stacked: &Stacked| Some(Candidate::of(stacked, arity));
        state.executor.count_unwatched();
        // SAFETY: as the caller promises.
        if unsafe { state.let_run_unwatched(gil, torch, stacked, expected)? } {
            return Ok(Way::Unwatched);
        }
        // SAFETY: as the caller promises.
        if !stacked.is_told() && unsafe { !state.count_entries(gil, torch, arity, stacked)? } {
            return Ok(Way::Python(candidate(stacked)));
        }
        let acted = watch.is_timed().then(|| state.acted());
        // SAFETY: as the caller promises.
        let call = unsafe {
            Dispatched {
                op: *self.op,
                keys: self.keys,
                values: self.values(),
            }
        };
        // SAFETY: as the caller promises.
        let mut begun = unsafe { state.begin_known(gil, torch, &call, stacked)? };
        if begun.is_none()
            && (state.learn_by_count(stacked) || state.learn_by_family(gil, arity, stacked)?)
        {
            // SAFETY: as the caller promises.
            begun = unsafe { state.begin_known(gil, torch, &call, stacked)? };
        }
        if let Some(before) = acted {
            watch.leave_out(state.acted() - before);
        }
        Ok(match begun {
            Some(begun) => Way::Announced(Underway::new(held, begun)),
            None => Way::Python(candidate(stacked)),
        })
    }

    /// Runs the call if it is the transient op that comes next in a planned step. Returns whether it ran.
    ///
    /// # Safety
    /// As for [`Self::pass`].
    unsafe fn run_if_transient(
        &self,
        held: &mut Held<'_>,
        call: &OnStack<'_>,
        watch: &mut Watch<'_>,
    ) -> PyResult<bool> {
        let address = self.op as usize;
        // SAFETY: as the caller promises. An error unwinds: the engine is told, and the state unlocked.
        unsafe {
            held.state.run_if_transient(OnDemand, call, address, || {
                watch.pause();
                self.torch.dispatcher.next(self.op, self.keys, self.stack);
                watch.go_on();
            })
        }
    }

    /// Runs a call that was announced, and takes in its results.
    ///
    /// # Safety
    /// As for [`Self::pass`].
    #[inline]
    unsafe fn run(
        &self,
        mut underway: Underway<'_>,
        keeps: bool,
        stacked: &mut Stacked,
        watch: &mut Watch<'_>,
    ) -> PyResult<Left> {
        let (torch, arity, stack) = (self.torch, self.arity, self.stack);
        if keeps {
            // SAFETY: the arguments are alive until the kernel runs.
            unsafe { stacked.keep(torch) };
        }
        underway.note_taken(arity);
        watch.pause();
        // SAFETY: the arguments are the last values on the stack.
        let arguments = unsafe { underway.arguments(torch, &*stack, arity) };
        let clock = underway.start_measuring();
        // SAFETY: as the caller promises. An error unwinds: `underway` takes the op back.
        let ran = unsafe { underway.run(torch, self.op, self.keys, stack) };
        if ran == Ended::NoRoom {
            let Some(arguments) = arguments else {
                return Err(underway.refuse());
            };
            drop(underway); // takes the op back
            let candidate = Some(Candidate::of(stacked, arity));
            self.hand(candidate);
            return Ok(Left::Python(Some(Box::new(arguments))));
        }
        drop(arguments);
        if let Some(clock) = clock {
            underway.measure(&clock);
        }
        watch.go_on();
        // SAFETY: the results are the last values on the stack.
        unsafe {
            let results = (*stack).last(arity.schema.results).unwrap_or(&[]);
            if keeps {
                underway.take_in(torch, OnDemand, results, stacked)?;
            } else {
                Gil::with(|py| underway.take_in(torch, py, results, stacked)).unwrap_or(Ok(()))?;
            }
        }
        Ok(Left::Nothing)
    }
}
