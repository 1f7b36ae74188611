//! Time that the session takes to watch ops that come natively: one op in so many is timed, and stands for all.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// One op in so many is timed. A prime, so that no step of a loop is timed at the same places again and again.
const EVERY: u64 = 61;

/// The time of the ops that were timed.
#[derive(Default)]
pub(super) struct WatchClock {
    ops: AtomicU64,
    nanoseconds: AtomicU64,
}

/// The time of an op, while its kernel does not run; nothing for an op that is not timed.
pub(super) struct Watch<'a> {
    clock: &'a WatchClock,
    since: Option<Instant>,
    spent: Duration,
    timed: bool,
}

impl WatchClock {
    /// An op came.
    #[inline]
    pub(super) fn start(&self) -> Watch<'_> {
        let timed = self.ops.fetch_add(1, Ordering::Relaxed) % EVERY == 0;
        Watch {
            clock: self,
            since: timed.then(Instant::now),
            spent: Duration::ZERO,
            timed,
        }
    }

    /// Nanoseconds that all ops took.
    pub(super) fn nanoseconds(&self) -> u64 {
        EVERY * self.nanoseconds.load(Ordering::Relaxed)
    }
}

impl Watch<'_> {
    /// Whether the op is timed.
    #[inline]
    pub(super) fn is_timed(&self) -> bool {
        self.timed
    }

    /// The kernel, or something else that is not watching, begins.
    #[inline]
    pub(super) fn pause(&mut self) {
        if let Some(since) = self.since.take() {
            self.spent += since.elapsed();
        }
    }

    /// It ended.
    #[inline]
    pub(super) fn go_on(&mut self) {
        if self.timed {
            self.since = Some(Instant::now());
        }
    }

    /// So many nanoseconds since the op came were spent on something else: replays, and decisions.
    pub(super) fn leave_out(&mut self, nanoseconds: u64) {
        self.pause();
        self.spent = self.spent.saturating_sub(Duration::from_nanos(nanoseconds));
        self.go_on();
    }
}

impl Drop for Watch<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.timed {
            self.pause();
            let spent = self.spent.as_nanos() as u64; // some centuries fit
            self.clock.nanoseconds.fetch_add(spent, Ordering::Relaxed);
        }
    }
}
