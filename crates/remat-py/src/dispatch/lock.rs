//! The lock on a session's state. The thread that holds it recognises its own calls from within an op.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use super::lent::Lent;
use super::state::State;
use super::watch_clock::WatchClock;
use crate::ffi::gil::Attach;

/// A session's state behind a lock, and the parts that can be read from within an op.
pub(super) struct SessionLock {
    state: Mutex<State>,
    /// The thread that holds the lock, 0 for none.
    owner: AtomicU64,
    /// The thread that uses the lent state, 0 for none. The owner's calls are its own meanwhile.
    borrower: AtomicU64,
    /// Whether settings of torch changed, as in the state.
    pub(super) settings_changed: Arc<AtomicBool>,
    /// The state while an op runs, as in the state.
    lent: Arc<Lent<State>>,
    /// Ops that ran natively without entering the session: they make views.
    pub(super) passed: AtomicU64,
    /// Ops that ran while nobody watched, because memory was plentiful.
    pub(super) unwatched: AtomicU64,
    /// Time that watching ops takes natively.
    pub(super) watch: WatchClock,
}

/// A thread, as the lock knows it.
struct Me {
    /// Never 0.
    id: u64,
    /// Whether it is [within an op](Within).
    within: Cell<bool>,
}

thread_local! {
    static ME: Me = {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Me {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            within: Cell::new(false),
        }
    };
    /// Storages that the op declares to write that the thread is within, by address.
    static WRITING: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

fn thread_id() -> u64 {
    ME.with(|me| me.id)
}

/// While it is there, this thread is within an op that it runs without the lock: as with the lock, ops that it calls
/// meanwhile are none of the session's.
pub(super) struct Within(());

impl Within {
    /// Within an op that declares to write storages at these addresses.
    pub(super) fn an_op(writing: Vec<usize>) -> Within {
        ME.with(|me| me.within.set(true));
        WRITING.set(writing);
        Within(())
    }

    /// Whether this thread is within an op that declares to write the storage.
    pub(super) fn writes(storage: usize) -> bool {
        WRITING.with_borrow(|writing| writing.contains(&storage))
    }
}

impl Drop for Within {
    fn drop(&mut self) {
        ME.with(|me| me.within.set(false));
        WRITING.take();
    }
}

/// The state, locked.
pub(super) struct Held<'a> {
    pub(super) state: MutexGuard<'a, State>,
    owner: &'a AtomicU64,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.owner.store(0, Ordering::Release);
    }
}

impl SessionLock {
    pub(super) fn of(state: State) -> SessionLock {
        SessionLock {
            owner: AtomicU64::new(0),
            borrower: AtomicU64::new(0),
            settings_changed: state.executor.global_state.changed(),
            lent: state.lent.clone(),
            passed: AtomicU64::new(0),
            unwatched: AtomicU64::new(0),
            watch: WatchClock::default(),
            state: Mutex::new(state),
        }
    }

    /// The state, unless this very thread holds it already or is [within an op](Within) (which calls back into torch).
    /// The engine knows of all storages.
    pub(super) fn enter(&self, py: Python<'_>) -> Option<Held<'_>> {
        let mut entered = self.enter_as_it_is(py);
        if let Some(held) = &mut entered {
            held.state.executor.count_unwatched();
            held.state.executor.tell_untold();
        }
        entered
    }

    /// [`enter`](Self::enter) without telling the engine of storages that it does not know, and of what ops took that
    /// ran unwatched.
    pub(super) fn enter_as_it_is(&self, py: Python<'_>) -> Option<Held<'_>> {
        self.enter_anyhow(py).ok().flatten() // no error: the GIL is there
    }

    /// [`enter_as_it_is`](Self::enter_as_it_is) without the GIL, or with it if torch holds it.
    ///
    /// # Errors
    /// `RuntimeError` where the interpreter has ended.
    pub(super) fn enter_anyhow(&self, gil: impl Attach) -> PyResult<Option<Held<'_>>> {
        loop {
            if let Some(entered) = self.try_enter() {
                return Ok(entered);
            }
            gil.attach(|py| {
                self.wait(py);
                Ok(())
            })?;
        }
    }

    /// The state, unless this very thread holds it already or is within an op; `None` if another thread holds it.
    #[inline]
    fn try_enter(&self) -> Option<Option<Held<'_>>> {
        let (me, within) = ME.with(|me| (me.id, me.within.get()));
        if within || self.is_at_work(me) {
            return Some(None);
        }
        let state = self.try_lock()?;
        self.owner.store(me, Ordering::Release);
        Some(Some(Held {
            state,
            owner: &self.owner,
        }))
    }

    /// The state; `None` if a thread holds it.
    #[inline]
    fn try_lock(&self) -> Option<MutexGuard<'_, State>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Whether a thread is amid work of the session's.
    #[inline]
    fn is_at_work(&self, thread: u64) -> bool {
        let is = |worker: &AtomicU64| worker.load(Ordering::Acquire) == thread;
        is(&self.owner) || is(&self.borrower)
    }

    /// Waits for the lock without the GIL, which the thread that holds the lock may need to finish.
    fn wait(&self, py: Python<'_>) {
        py.detach(|| drop(self.state.lock().unwrap_or_else(PoisonError::into_inner)));
    }

    /// The state in the child of a fork; `None` if another thread of the parent was amid an op, or this one is.
    pub(super) fn enter_child(&self) -> Option<MutexGuard<'_, State>> {
        let state = self.state.try_lock().ok()?;
        let within = ME.with(|me| me.within.get());
        (self.owner.load(Ordering::Acquire) == 0 && !within).then_some(state)
    }

    /// Uses the state from within an allocation: the lent state if an op runs, else the locked one. `None` if neither
    /// is to be had. Another thread that decides or replays is waited for, but not for ever: the kernel that it runs
    /// may wait for this very thread.
    pub(super) fn with_any<R>(
        &self,
        py: Python<'_>,
        action: impl Fn(&mut State) -> R,
    ) -> Option<R> {
        const PATIENCE: Duration = Duration::from_secs(5);
        const PAUSE: Duration = Duration::from_micros(20);
        let mut since = None;
        loop {
            let done = self.try_with_any(py, &action);
            if done.is_some() || self.is_at_work(thread_id()) {
                return done;
            }
            if since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                return None;
            }
            py.detach(|| std::thread::sleep(PAUSE));
        }
    }

    /// The same without waiting.
    fn try_with_any<R>(&self, py: Python<'_>, action: impl Fn(&mut State) -> R) -> Option<R> {
        let lent = self.lent.with(py, |state| {
            // Python code that runs meanwhile on this thread (an object's end) is no op of the session's.
            self.borrower.store(thread_id(), Ordering::Release);
            let done = action(state);
            self.borrower.store(0, Ordering::Release);
            done
        });
        if lent.is_some() {
            return lent;
        }
        let mut state = self.try_lock()?;
        self.owner.store(thread_id(), Ordering::Release);
        let done = action(&mut state);
        self.owner.store(0, Ordering::Release);
        Some(done)
    }
}
