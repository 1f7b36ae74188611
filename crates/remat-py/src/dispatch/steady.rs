//! Whether a run needs no more memory than it did for long.

/// The time since which a run needs no more memory.
#[derive(Debug, Default)]
pub(super) struct Steady {
    /// The memory that it needs, in bytes.
    most: u64,
    /// Ops that ran before.
    since: u64,
}

impl Steady {
    /// Has it take as many ops again until the run counts as steady.
    pub(super) fn begin_anew(&mut self, ops: u64) {
        self.since = ops;
    }

    /// Takes in what a run needs after so many ops. Whether it needed about as much after half of them,
    /// and so many more ran since.
    pub(super) fn look(&mut self, peak: u64, ops: u64, first: u64) -> bool {
        if peak > self.most + self.most / 8 {
            *self = Steady {
                most: peak,
                since: ops,
            };
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
}
