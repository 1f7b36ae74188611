//! Time that the session takes to watch ops that come natively: one op in so many is timed, and stands for all.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::ffi::thread::processor_time;

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
    since: Option<Moment>,
    /// Processor time so far, with that of what is left out.
    processor: Duration,
    /// The time on the wall so far.
    wall: Duration,
    timed: bool,
}

/// A moment by the processor time of the thread, and by the clock on the wall.
#[derive(Clone, Copy)]
struct Moment(Duration, Instant);

impl Moment {
    fn now() -> Moment {
        Moment(processor_time(), Instant::now())
    }

    /// The processor time and the time on the wall since then.
    fn elapsed(self) -> (Duration, Duration) {
        let wall = self.1.elapsed();
        (processor_time().saturating_sub(self.0), wall)
    }
}

impl WatchClock {
    /// An op came.
    #[inline]
    pub(super) fn start(&self) -> Watch<'_> {
        let timed = self.ops.fetch_add(1, Ordering::Relaxed) % EVERY == 0;
        Watch {
            clock: self,
            since: timed.then(Moment::now),
            processor: Duration::ZERO,
            wall: Duration::ZERO,
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
            let (processor, wall) = since.elapsed();
            self.processor += processor;
            self.wall += wall;
        }
    }

    /// It ended.
    #[inline]
    pub(super) fn go_on(&mut self) {
        if self.timed {
            self.since = Some(Moment::now());
        }
    }

    /// So many nanoseconds since the op came were spent on something else: replays, and decisions.
    pub(super) fn leave_out(&mut self, nanoseconds: u64) {
        self.pause();
        self.wall = self.wall.saturating_sub(Duration::from_nanos(nanoseconds));
        self.go_on();
    }
}

impl Drop for Watch<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.timed {
            self.pause();
            // Another program may have had the processor amid the op, which stands for so many others that it would
            // count for a second. To read processor time takes long itself, which the clock on the wall does not see.
            let spent = self.wall.min(self.processor);
            let spent = spent.as_nanos() as u64; // some centuries fit
            self.clock.nanoseconds.fetch_add(spent, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_without_the_processor_does_not_count() {
        let clock = WatchClock::default();
        let watch = clock.start();
        assert!(watch.is_timed());
        std::thread::sleep(Duration::from_millis(200));
        drop(watch);
        assert!(clock.nanoseconds() < EVERY * 100_000_000);
        let watch = clock.start();
        assert!(!watch.is_timed());
    }

    #[test]
    fn time_with_the_processor_counts_but_for_pauses() {
        let spin = |time: Duration| {
            let since = processor_time();
            while processor_time() - since < time {
                std::hint::spin_loop();
            }
        };
        let (clock, time) = (WatchClock::default(), Duration::from_millis(20));
        let mut watch = clock.start();
        watch.pause();
        spin(20 * time);
        watch.go_on();
        spin(time);
        drop(watch);
        let counted = Duration::from_nanos(clock.nanoseconds() / EVERY);
        assert!(counted >= time / 2 && counted < 20 * time);
    }
}
