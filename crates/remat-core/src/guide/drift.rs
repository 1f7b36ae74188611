//! Whether steps take as long as when they were planned.

use super::plan::StepCosts;
use crate::ids::Cost;

/// Steps in a row that take longer or shorter before the step is recorded again. Twice as many the next time, so that
/// load that comes and goes costs little planning.
const STEPS: u32 = 8;

/// The costs of a planned step, and how many steps in a row were otherwise.
#[derive(Debug)]
pub(super) struct Drift {
    expected: StepCosts,
    moved: u32,
    patience: u32,
    due: bool,
}

impl Drift {
    /// From these costs.
    pub(super) fn from(expected: StepCosts) -> Drift {
        Drift {
            expected,
            moved: 0,
            patience: STEPS,
            due: false,
        }
    }

    /// Waits as long as the drift of the plan before does.
    pub(super) fn wait_like(&mut self, before: &Drift) {
        self.patience = before.patience;
    }

    /// The time of the step's ops, each once, as far as is known.
    pub(super) fn first(&self) -> Cost {
        self.expected.first
    }

    /// A step was followed to its end.
    pub(super) fn ended(&mut self, step: StepCosts) {
        if !has_moved(self.expected, step) {
            self.moved = 0;
            return;
        }
        self.moved += 1;
        if self.moved == self.patience {
            self.expected = step;
            self.moved = 0;
            self.patience = self.patience.saturating_mul(2);
            self.due = true;
        }
    }

    /// Whether the step is to be recorded again.
    pub(super) fn is_due(&self) -> bool {
        self.due
    }

    /// The step was recorded.
    pub(super) fn recorded(&mut self) {
        self.due = false;
    }
}

/// Whether first runs or replays moved by more than a tenth. Replays count from a hundredth of the step on.
fn has_moved(expected: StepCosts, step: StepCosts) -> bool {
    let moved = |from: u64, to: u64, tenth: u64| from.abs_diff(to) > tenth;
    let hundredth = expected.first.0 / 100;
    moved(expected.first.0, step.first.0, expected.first.0 / 10)
        || moved(
            expected.replayed.0,
            step.replayed.0,
            (expected.replayed.0 / 10).max(hundredth),
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(first: u64, replayed: u64) -> StepCosts {
        StepCosts {
            first: Cost(first),
            replayed: Cost(replayed),
        }
    }

    #[test]
    fn a_tenth_of_first_runs_or_of_replays_is_much() {
        let expected = costs(1000, 200);
        for near in [(1100, 200), (900, 200), (1000, 220), (1000, 180)] {
            assert!(!has_moved(expected, costs(near.0, near.1)), "{near:?}");
        }
        for far in [(1101, 200), (899, 200), (1000, 221), (1000, 179)] {
            assert!(has_moved(expected, costs(far.0, far.1)), "{far:?}");
        }
        assert!(!has_moved(costs(1000, 0), costs(1000, 10)));
        assert!(has_moved(costs(1000, 0), costs(1000, 11)));
    }

    #[test]
    fn a_step_is_due_after_enough_in_a_row_and_after_twice_as_many_the_next_time() {
        let mut drift = Drift::from(costs(1000, 0));
        let mut steps = |first, count| {
            let due = (0..count).filter(|_| {
                drift.ended(costs(first, 0));
                let due = drift.is_due();
                drift.recorded();
                due
            });
            due.count()
        };
        assert_eq!(steps(2000, STEPS - 1), 0);
        assert_eq!(steps(1000, 1), 0);
        assert_eq!(steps(2000, STEPS), 1);
        assert_eq!(steps(2000, 100), 0);
        assert_eq!(steps(1000, 2 * STEPS - 1), 0);
        assert_eq!(steps(1000, 1), 1);
    }
}
