//! The state of a thread that the fallback asks for at each op.

use std::cell::Cell;

use pyo3::prelude::*;

use super::fallback_route::Route;
use crate::ffi::dispatcher::{self, Op};

thread_local! {
    pub(super) static THREAD: Thread = const {
        Thread {
            captures: Cell::new(false),
            paused: Cell::new(false),
            recent: [const { Cell::new((0, None)) }; 64],
        }
    };
}

/// All of it together, because each look at a variable of the thread takes as long as a function call.
pub(super) struct Thread {
    /// Whether the probe captures ops.
    captures: Cell<bool>,
    /// Whether ops are kept from the session.
    paused: Cell<bool>,
    /// Routes that this thread asked for lately, by op.
    recent: [Cell<(usize, Option<Route>)>; 64],
}

impl Thread {
    /// Whether ops are captured and whether they are kept from the session, and the route of one.
    #[inline]
    pub(super) fn look(&self, op: Op) -> (bool, bool, Option<Route>) {
        (self.captures.get(), self.paused.get(), self.route_of(op))
    }

    /// Whether ops are kept from the session.
    pub(super) fn is_paused(&self) -> bool {
        self.paused.get()
    }

    /// Has ops captured, or not any more.
    pub(super) fn set_captures(&self, on: bool) {
        self.captures.set(on);
    }

    #[inline]
    fn route_of(&self, op: Op) -> Option<Route> {
        let slot = self.slot(op);
        let (id, route) = slot.get();
        if id == op.id() {
            return route;
        }
        let route = Route::of(op)?;
        slot.set((op.id(), Some(route)));
        Some(route)
    }

    fn slot(&self, op: Op) -> &Cell<(usize, Option<Route>)> {
        // Ops lie at addresses that differ above their alignment.
        let id = op.id();
        &self.recent[(id >> 4 ^ id >> 10) % 64]
    }
}

/// Has this thread's ops come to the fallback, or not any more.
#[pyfunction]
pub fn include_native(on: bool) {
    if let Some(dispatcher) = dispatcher::dispatcher() {
        dispatcher.include(on);
    }
}

/// Keeps this thread's ops from the session, or not any more, and says whether they were kept before. Unlike
/// [`include_native`], it does not change the thread's dispatch keys, which guards of compiled code compare.
#[pyfunction]
pub fn pause_native(on: bool) -> bool {
    THREAD.with(|thread| thread.paused.replace(on))
}
