//! Ops that reach the session without Python: the fallback on torch's dispatcher.
//!
//! An op of a known form is announced, run and taken in here. Any other is handed to the dispatch mode, as if the
//! program had one on its stack; there its form may become known.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLock};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use super::capture;
use super::fallback_route::Route;
use super::forms::Candidate;
use super::lock::{Held, SessionLock};
use super::modes::Modes;
use super::placed::{Ended, known_is_repeatable};
use super::raising::raise;
use super::running::Begun;
use super::thread::{THREAD, Thread};
use super::unwatched;
use super::watch_clock::Watch;
use crate::call::stacked::{Arity, Stacked, keeps_tensors};
use crate::call::template::Dispatched;
use crate::ffi::autograd;
use crate::ffi::boxed::{Boxed, Stack, Value};
use crate::ffi::counted;
use crate::ffi::dispatcher::{self, Dispatcher, Keys, Libraries, Op, Torch};
use crate::ffi::gil::{Attach, Gil, OnDemand};
use crate::ffi::owned::Arguments;
use crate::ffi::thread::CallClock;

/// The session in force, as the fallback sees it.
pub struct Native {
    lock: Arc<SessionLock>,
    /// The dispatch mode, for ops of forms that are not known.
    mode: Py<PyAny>,
    /// The stack of modes.
    modes: Modes,
    /// `route(name, overload)`: an op's way and its schema, as a tuple.
    route: Py<PyAny>,
}

static ACTIVE: RwLock<Option<Arc<Native>>> = RwLock::new(None);

thread_local! {
    static CANDIDATE: RefCell<Option<Candidate>> = const { RefCell::new(None) };
    static STACKED: Cell<Option<Box<Stacked>>> = const { Cell::new(None) };
}

/// The call that is on its way through Python on this thread.
pub(super) fn take_candidate() -> Option<Candidate> {
    CANDIDATE.with_borrow_mut(Option::take)
}

fn active() -> Option<Arc<Native>> {
    ACTIVE
        .read()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
}

/// The lock of the session in force.
pub(super) fn active_lock() -> Option<Arc<SessionLock>> {
    Some(active()?.lock.clone())
}

/// Enters the session: ops of threads that include the key come to it.
pub(super) fn enter(native: Native) {
    let mut active = ACTIVE.write().unwrap_or_else(PoisonError::into_inner);
    let before = active.replace(Arc::new(native));
    drop(active); // dropping the last reference may run Python code
    drop(before);
}

/// Leaves the session.
pub(super) fn leave() {
    let mut active = ACTIVE.write().unwrap_or_else(PoisonError::into_inner);
    let before = active.take();
    drop(active);
    drop(before);
}

impl Native {
    pub(super) fn new(
        lock: Arc<SessionLock>,
        mode: Py<PyAny>,
        internals: &Bound<'_, PyAny>,
    ) -> PyResult<Native> {
        let get = |name: &str| -> PyResult<Py<PyAny>> { Ok(internals.getattr(name)?.unbind()) };
        Ok(Native {
            lock,
            mode,
            modes: Modes::of(internals)?,
            route: get("route")?,
        })
    }

    /// The treatment of an op, which Python describes when it is first seen.
    fn learn_route(&self, py: Python<'_>, op: Op) -> PyResult<Route> {
        // SAFETY: the dispatcher passed the op to the fallback.
        let (name, overload) = unsafe { op.name() };
        let found = self.route.bind(py).call1((name, overload))?;
        Ok(Route::learn(op, found.extract()?))
    }

    /// Hands the call to the dispatch mode.
    ///
    /// # Safety
    /// As for [`Dispatcher::through_mode`].
    unsafe fn through_python(&self, torch: &Torch, op: *const Op, keys: u64, stack: *mut Stack) {
        let pushed = Gil::with(|py| self.modes.push(py, &self.mode));
        if let Some(Err(error)) = pushed {
            // SAFETY: no reference into the stack is held.
            unsafe { raise(torch, error) };
        }
        let _popped = Popped(self);
        // SAFETY: as the caller promises; the mode was pushed.
        unsafe { torch.dispatcher.through_mode(op, keys, stack) }
    }

    /// Hands a call that Python has yet to see to Python, with the dispatch mode below those of the program: modes and
    /// tensor subclasses see the call first, as where Python's key lies above the fallback's, and the ops that they
    /// call reach the session through the mode.
    ///
    /// # Safety
    /// As for [`Dispatcher::through_mode`]; the key is excluded.
    unsafe fn beneath_python(&self, torch: &Torch, op: *const Op, keys: u64, stack: *mut Stack) {
        let pushed = Gil::with(|py| self.modes.push_beneath(py, &self.mode));
        if let Some(Err(error)) = pushed {
            // SAFETY: no reference into the stack is held.
            unsafe { raise(torch, error) };
        }
        let _dropped = Dropped(self);
        // SAFETY: as the caller promises; the mode was pushed.
        unsafe { torch.dispatcher.through_mode(op, keys, stack) }
    }
}

/// Runs an action while an error of Python's may be on its way through C++, which leaves it set in the interpreter.
fn error_aside<R>(py: Python<'_>, action: impl FnOnce() -> R) -> R {
    let error = PyErr::take(py);
    let done = action();
    if let Some(error) = error {
        error.restore(py);
    }
    done
}

/// Has Python tell of an error on stderr, where nobody can be told of it otherwise.
fn told<T>(py: Python<'_>, outcome: PyResult<T>) {
    if let Err(error) = outcome {
        error.write_unraisable(py, None);
    }
}

/// Pops the mode when dropped, after an error of torch too.
struct Popped<'a>(&'a Native);

impl Drop for Popped<'_> {
    fn drop(&mut self) {
        // Popping cannot fail: the mode is there.
        Gil::with(|py| error_aside(py, || told(py, self.0.modes.pop(py))));
    }
}

/// Takes the mode out from beneath those of the program when dropped, after an error of torch too.
struct Dropped<'a>(&'a Native);

impl Drop for Dropped<'_> {
    fn drop(&mut self) {
        let Native { mode, modes, .. } = self.0;
        // Nor can this fail.
        Gil::with(|py| error_aside(py, || told(py, modes.drop_beneath(py, mode))));
    }
}

/// The op that runs, told to the engine as not run if torch raises.
struct Underway<'a> {
    held: Option<Held<'a>>,
    begun: Option<Begun>,
}

impl Underway<'_> {
    /// Starts to measure the call, if the cost of its form is due.
    fn start_measuring(&self) -> Option<CallClock> {
        let known = self.begun.as_ref()?.known();
        known.cost.is_due().then(CallClock::start)
    }

    /// Takes in how much the call takes.
    fn note_taken(&self, arity: &Arity) {
        if let Some(begun) = &self.begun {
            arity.seen.note_taken(begun.known().taken());
        }
    }

    /// The arguments of a call in an arena, which is made again through Python if it finds no room.
    ///
    /// # Safety
    /// As for [`Arguments::of`].
    #[inline]
    unsafe fn arguments(&self, torch: &Torch, stack: &Stack, arity: &Arity) -> Option<Arguments> {
        let (held, begun) = (self.held.as_ref()?, self.begun.as_ref()?);
        if held.state.executor.arena.is_none() || !known_is_repeatable(begun.known()) {
            return None;
        }
        // SAFETY: as the caller promises.
        unsafe { Arguments::of(torch.boxed, stack, arity.arguments) }
    }

    /// Runs the call.
    ///
    /// # Safety
    /// As for [`Dispatcher::next`].
    #[inline]
    unsafe fn run(&mut self, torch: &Torch, op: *const Op, keys: u64, stack: *mut Stack) -> Ended {
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
    fn refuse(self) -> PyErr {
        let held = self.held.as_ref();
        let refusal = held.and_then(|held| Gil::with(|py| held.state.executor.no_block(py)));
        refusal.unwrap_or_else(|| PyRuntimeError::new_err("remat: the interpreter has ended"))
    }

    /// The call has run.
    fn measure(&self, clock: &CallClock) {
        if let Some(begun) = &self.begun {
            begun.known().cost.sample(clock.nanoseconds());
        }
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

/// The fallback.
///
/// # Safety
/// The dispatcher calls it.
pub(super) unsafe extern "C-unwind" fn fallback(
    _functor: *mut c_void,
    op: *const Op,
    keys: u64,
    stack: *mut Stack,
) {
    let Some(dispatcher) = dispatcher::dispatcher() else {
        std::process::abort() // it is set up before any thread includes the key
    };
    // SAFETY: the dispatcher's own argument.
    let id = unsafe { *op };
    let (captures, paused, route) = THREAD.with(|thread| thread.look(id));
    if captures {
        // SAFETY: the dispatcher's own arguments.
        unsafe { capture::note(op, keys, stack) };
    }
    // What no dispatch mode sees is none of the session's business.
    let aside = captures || paused || dispatcher.modes_are_disabled() || !Gil::is_there();
    let native = if aside { None } else { active() };
    let (Some(native), Some(boxed)) = (native, dispatcher::boxed()) else {
        let _excluded = dispatcher.exclude();
        // SAFETY: the dispatcher's own arguments.
        return unsafe { dispatcher.next(op, keys, stack) };
    };
    let torch = Torch { dispatcher, boxed };
    if dispatcher.awaits_python(keys) {
        let _excluded = dispatcher.exclude();
        // SAFETY: the dispatcher's own arguments; `native` is an `Arc`, which unwinding drops.
        return unsafe { native.beneath_python(&torch, op, keys, stack) };
    }
    let route = match route {
        Some(route) => Ok(route),
        None => {
            let _excluded = dispatcher.exclude();
            Gil::with(|py| native.learn_route(py, id)).unwrap_or(Ok(Route::Run))
        }
    };
    // SAFETY: the dispatcher's own arguments; `native` is an `Arc`, which unwinding drops.
    unsafe {
        match route {
            Ok(Route::Decompose) => dispatcher.next(op, keys, stack),
            Ok(Route::Run) => {
                native.lock.passed.fetch_add(1, Ordering::Relaxed);
                let _excluded = dispatcher.exclude();
                dispatcher.next(op, keys, stack)
            }
            Ok(Route::Detach) => {
                let _excluded = dispatcher.exclude();
                dispatcher.next(op, keys, stack);
                if counted::is_on() || autograd::accumulating() == Some(false) {
                    native.lock.passed.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                let pinned = Gil::with(|py| pin_result(&native, &torch, py, &*stack));
                if let Some(Err(error)) = pinned {
                    raise(&torch, error)
                }
            }
            Ok(Route::Session(arity)) => {
                let _excluded = dispatcher.exclude();
                session(&native, &torch, arity, op, keys, stack)
            }
            Err(error) => {
                let _excluded = dispatcher.exclude();
                raise(&torch, error)
            }
        }
    }
}

/// Pins the result of a call if it is a gradient that autograd is about to leave in a leaf.
///
/// # Safety
/// The call returned, and its one result is the last value on the stack.
unsafe fn pin_result(
    native: &Native,
    torch: &Torch,
    py: Python<'_>,
    stack: &Stack,
) -> PyResult<()> {
    let Some(mut held) = native.lock.enter_as_it_is(py) else {
        return Ok(());
    };
    held.state.ops += 1;
    held.state.executor.drain_deaths(py)?;
    // SAFETY: as the caller promises.
    let results = unsafe { stack.last(1) }.unwrap_or(&[]);
    held.state.pin_accumulated(py, torch, results)
}

/// Runs an op unwatched.
///
/// # Safety
/// The dispatcher's own arguments; the key is excluded.
#[inline]
unsafe fn run_unwatched(
    native: &Native,
    torch: &Torch,
    op: *const Op,
    keys: u64,
    stack: *mut Stack,
) {
    native.lock.unwatched.fetch_add(1, Ordering::Relaxed);
    let _running = counted::Running::op(op as usize);
    // SAFETY: as the caller promises.
    unsafe { torch.dispatcher.next(op, keys, stack) }
}

/// The way of a call whose form was looked up.
enum Way<'a> {
    /// To be run unwatched.
    Unwatched,
    /// Announced, and still to run.
    Announced(Underway<'a>),
    /// Its form is not known.
    Python,
    /// The session itself calls: it is amid another op on this thread.
    Inside,
}

/// Tells the session of an op.
///
/// # Safety
/// The dispatcher's own arguments; the key is excluded.
unsafe fn session(
    native: &Native,
    torch: &Torch,
    arity: &'static Arity,
    op: *const Op,
    keys: u64,
    stack: *mut Stack,
) {
    let mut expected = u64::MAX;
    if arity.unwatched && unwatched::is_possible() {
        // SAFETY: the arguments are the last values on the stack.
        let values = unsafe { (*stack).last(arity.arguments).unwrap_or(&[]) };
        // SAFETY: as above.
        let inputs = unsafe { unwatched::look(torch, values) };
        if inputs.are_usual(arity) {
            expected = unwatched::expected(arity);
            if inputs.counted && counted::is_on() && counted::has_room(expected) {
                // SAFETY: as the caller promises.
                return unsafe { run_unwatched(native, torch, op, keys, stack) };
            }
        }
        arity.seen.note_read(inputs.bytes);
    }
    let mut watch = native.lock.watch.start();
    let mut stacked = STACKED.take().unwrap_or_default();
    // SAFETY: the arguments are the last values on the stack, which nobody changes before the kernel runs.
    let known = unsafe {
        let seed = ((*op).id() as u64) << 1 | u64::from(torch.dispatcher.grad_enabled());
        let values = (*stack).last(arity.arguments).unwrap_or(&[]);
        stacked.pass(torch, arity, values, seed)
    };
    if stacked.aside {
        STACKED.set(Some(stacked));
        drop(watch);
        // SAFETY: as the caller promises.
        return unsafe { torch.dispatcher.next(op, keys, stack) };
    }
    // Where arguments can be kept alive without Python, the GIL is taken only where something is new.
    let keeps = keeps_tensors();
    let way = if known {
        // SAFETY: the arguments are alive until the kernel runs.
        unsafe {
            let values = (*stack).last(arity.arguments).unwrap_or(&[]);
            let op = *op;
            let mut coming = Coming {
                call: Dispatched { op, keys, values },
                stacked: &mut stacked,
                arity,
                expected,
            };
            if keeps {
                announce(native, torch, OnDemand, &mut coming, &mut watch)
            } else {
                Gil::with(|py| announce(native, torch, py, &mut coming, &mut watch))
                    .unwrap_or(Ok(Way::Inside))
            }
        }
    } else {
        Ok(Way::Python)
    };
    match way {
        Ok(Way::Announced(mut underway)) => {
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
            let ran = unsafe { underway.run(torch, op, keys, stack) };
            if ran == Ended::NoRoom {
                let Some(arguments) = arguments else {
                    let error = underway.refuse();
                    stacked.let_go();
                    STACKED.set(Some(stacked));
                    drop(watch);
                    // SAFETY: nothing is in use.
                    unsafe { raise(torch, error) }
                };
                drop(underway); // takes the op back
                CANDIDATE.set(Some(Candidate::of(&stacked, arity)));
                stacked.let_go();
                STACKED.set(Some(stacked));
                drop(watch);
                // SAFETY: the call failed, and this is its stack.
                return unsafe {
                    arguments.put_back(torch.boxed, &mut *stack);
                    native.through_python(torch, op, keys, stack)
                };
            }
            drop(arguments);
            if let Some(clock) = clock {
                underway.measure(&clock);
            }
            watch.go_on();
            // SAFETY: the results are the last values on the stack.
            let taken = unsafe {
                let results = (*stack).last(arity.results).unwrap_or(&[]);
                if keeps {
                    take_in(torch, OnDemand, &mut underway, results, &stacked)
                } else {
                    Gil::with(|py| take_in(torch, py, &mut underway, results, &stacked))
                        .unwrap_or(Ok(()))
                }
            };
            drop(underway);
            stacked.let_go();
            STACKED.set(Some(stacked));
            drop(watch);
            if let Err(error) = taken {
                // SAFETY: nothing is in use.
                unsafe { raise(torch, error) }
            }
        }
        Ok(Way::Python) => {
            let next = known.then(|| Candidate::of(&stacked, arity));
            CANDIDATE.set(next);
            STACKED.set(Some(stacked));
            drop(watch);
            // SAFETY: as the caller promises.
            unsafe { native.through_python(torch, op, keys, stack) }
        }
        Ok(Way::Unwatched) => {
            STACKED.set(Some(stacked));
            drop(watch);
            // SAFETY: as the caller promises.
            unsafe { run_unwatched(native, torch, op, keys, stack) }
        }
        Ok(Way::Inside) => {
            STACKED.set(Some(stacked));
            drop(watch);
            // SAFETY: as the caller promises.
            unsafe { torch.dispatcher.next(op, keys, stack) }
        }
        Err(error) => {
            drop(watch);
            STACKED.set(Some(stacked));
            // SAFETY: nothing is in use.
            unsafe { raise(torch, error) }
        }
    }
}

/// A call whose arguments were passed over.
struct Coming<'a> {
    call: Dispatched<'a>,
    stacked: &'a mut Stacked,
    arity: &'static Arity,
    /// The most bytes that it is expected to take.
    expected: u64,
}

/// Announces a call if its form is known, or is by its family. It may run unwatched if there is room for what it is
/// expected to take.
///
/// # Safety
/// The call is in progress.
unsafe fn announce<'a>(
    native: &'a Native,
    torch: &Torch,
    gil: impl Attach,
    coming: &mut Coming<'_>,
    watch: &mut Watch<'_>,
) -> PyResult<Way<'a>> {
    let Coming {
        call,
        stacked,
        arity,
        expected,
    } = coming;
    let Some(mut held) = native.lock.enter_anyhow(gil)? else {
        return Ok(Way::Inside);
    };
    // SAFETY: as the caller promises.
    if unsafe {
        held.state
            .let_run_unwatched(gil, torch, stacked, *expected)?
    } {
        return Ok(Way::Unwatched);
    }
    // SAFETY: as the caller promises.
    if !stacked.is_told() && unsafe { !held.state.count_entries(gil, torch, arity, stacked)? } {
        return Ok(Way::Python);
    }
    let acted = watch.is_timed().then(|| held.state.acted());
    // SAFETY: as the caller promises.
    let mut begun = unsafe { held.state.begin_known(gil, torch, call, stacked)? };
    let state = &mut held.state;
    if begun.is_none()
        && (state.learn_by_count(stacked) || state.learn_by_family(gil, arity, stacked)?)
    {
        // SAFETY: as the caller promises.
        begun = unsafe { held.state.begin_known(gil, torch, call, stacked)? };
    }
    if let Some(before) = acted {
        watch.leave_out(held.state.acted() - before);
    }
    Ok(match begun {
        Some(begun) => Way::Announced(Underway {
            held: Some(held),
            begun: Some(begun),
        }),
        None => Way::Python,
    })
}

/// Takes in the results of a call that was announced.
///
/// # Safety
/// The results are alive.
unsafe fn take_in(
    torch: &Torch,
    gil: impl Attach,
    underway: &mut Underway<'_>,
    results: &[Value],
    stacked: &Stacked,
) -> PyResult<()> {
    let (Some(held), Some(begun)) = (&mut underway.held, underway.begun.take()) else {
        return Ok(());
    };
    let state = &mut held.state;
    // SAFETY: as the caller promises; the tensors that the call wrote to are kept until it is taken in.
    unsafe {
        match begun {
            Begun::Told(running) => state.finish_known(gil, torch, running, results, stacked),
            Begun::Unrecorded(known, number) => {
                state.finish_unrecorded(gil, torch, &known, number, results, stacked)
            }
        }
    }
}

/// Puts the fallback on the dispatcher; see [`set_up`](crate::ffi::dispatcher::set_up).
#[pyfunction]
pub fn register_native(keys: Keys, libraries: Libraries, redispatch: usize) -> PyResult<()> {
    // SAFETY: `prepare_native` of torch internals, the one caller, found these values on this build of torch, and that
    // nobody uses the key.
    unsafe { dispatcher::set_up(keys, &libraries, redispatch, fallback) }
}

/// Sets the tags and offsets of boxed values.
#[pyfunction]
pub fn describe_boxed(boxed: Boxed) {
    // SAFETY: as for `register_native`.
    unsafe { dispatcher::set_boxed(boxed) }
}

/// Whether ops that this thread calls now reach the session natively.
#[pyfunction]
pub fn reaches_session() -> bool {
    let seen = |at: &Dispatcher| at.is_reached() && !at.modes_are_disabled();
    dispatcher::dispatcher().is_some_and(seen)
        && !THREAD.with(Thread::is_paused)
        && active().is_some()
}

/// Ends native dispatch for all threads.
#[pyfunction]
pub fn leave_native() {
    leave();
}

/// Whether a tensor is a leaf, by the address of its `c10::TensorImpl`; `None` before native dispatch was set up.
#[pyfunction]
pub fn is_leaf(tensor: usize) -> Option<bool> {
    let (dispatcher, boxed) = (dispatcher::dispatcher()?, dispatcher::boxed()?);
    // SAFETY: the probe holds the tensor.
    Some(unsafe { dispatcher.is_leaf(&boxed.tensor_at(tensor)) })
}
