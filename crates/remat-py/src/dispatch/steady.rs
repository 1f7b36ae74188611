//! Whether a run needs no more memory than it did for long.

/// The time since which a run needs no more memory.
#[derive(Debug, Default)]
pub(super) struct Steady {
    /// The memory that it needs, in bytes.
    most: u64,
    /// Ops that ran before.
    since: u64,
    /// Ops that run before all is made constant again.
    attempt: u64,
}

impl Steady {
    /// Whether all may be made constant after so many ops. The next time is when twice as many ran.
    pub(super) fn attempts(&mut self, ops: u64) -> bool {
        let now = ops >= self.attempt;
        if now {
            self.attempt = 2 * ops;
        }
        now
    }

    /// Takes in what a run needs after so many ops. Whether it needed about as much after half of them,
    /// and so many more ran since.
    pub(super) fn look(&mut self, peak: u64, ops: u64, first: u64) -> bool {
        if peak > self.most + self.most / 8 {
            self.most = peak;
            self.since = ops;
        }
        ops >= first.saturating_add(2 * self.since)
    }
}

#[cfg(test)]
mod tests {
    use super::Steady;

    #[test]
    fn a_run_is_steady_once_half_of_its_ops_needed_no_more() {
        let mut steady = Steady::default();
        assert!(!steady.look(1000, 50, 100));
        assert!(!steady.look(1000, 199, 100));
        assert!(steady.look(1000, 200, 100));
        assert!(
            steady.look(1125, 1000, 100),
            "an eighth more is no other need"
        );
        assert!(!steady.look(1126, 1000, 100));
        assert!(!steady.look(1126, 2099, 100));
        assert!(steady.look(1126, 2100, 100));
    }

    #[test]
    fn attempts_are_ever_farther_apart() {
        let mut steady = Steady::default();
        let made: Vec<u64> = (300..5000).filter(|&ops| steady.attempts(ops)).collect();
        assert_eq!(made, [300, 600, 1200, 2400, 4800]);
    }
}
