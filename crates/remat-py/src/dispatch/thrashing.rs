//! Notices a run that spends more time on recomputing and deciding than on the program itself, and says so once.

use std::time::{Duration, Instant};

use remat_core::Bytes;

/// The clock is read once in so many ops.
const OPS: u32 = 1024;
/// Times are compared over so long at least.
const WHILE: Duration = Duration::from_secs(2);
/// A run thrashes that spends more than this part of its time so.
const HALF: f64 = 0.5;

/// The time since which a run is looked at. What recomputing and deciding took is time on the wall too, so that other
/// programs that take the processor lengthen both alike.
pub(super) struct Thrashing {
    ops: u32,
    since: Instant,
    /// Nanoseconds spent on replays and decisions until then.
    acted: u64,
    warned: bool,
}

impl Thrashing {
    pub(super) fn new() -> Thrashing {
        Thrashing {
            ops: 0,
            since: Instant::now(),
            acted: 0,
            warned: false,
        }
    }
}

impl Thrashing {
    /// An op came. Whether to [`look`](Self::look).
    #[inline]
    pub(super) fn is_time(&mut self) -> bool {
        self.ops += 1;
        self.ops >= OPS && !self.warned
    }

    /// The warning, once a run, where recomputing and deciding took longer of late than all else. `acted` is the
    /// nanoseconds that they took so far, `given` the budget, and `most` the most bytes that the program held at once,
    /// evicted ones too: what it would take without a budget.
    #[cold]
    pub(super) fn look(&mut self, acted: u64, given: Option<u64>, most: u64) -> Option<String> {
        self.ops = 0;
        let (span, spent) = (self.since.elapsed(), acted.saturating_sub(self.acted));
        if span < WHILE {
            return None;
        }
        self.since = Instant::now();
        self.acted = acted;
        let share = spent as f64 / span.as_nanos() as f64;
        let given = given.filter(|_| share > HALF)?;
        self.warned = true;
        let better = given + most.saturating_sub(given) / 2;
        let wants = if better > given {
            let (most, better) = (Bytes(most), Bytes(better));
            format!("the program holds up to {most} at once; give it more, for example {better}")
        } else {
            "give it more".to_owned()
        };
        Some(format!(
            "remat: recomputing and deciding took {:.0}% of the last {:.0} seconds, within a budget of {}: {wants} \
             (thrash_limit, --thrash-limit ends such a run with an error)",
            100.0 * share,
            span.as_secs_f64(),
            Bytes(given),
        ))
    }
}
