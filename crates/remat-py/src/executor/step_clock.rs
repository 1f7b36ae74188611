//! The time that planned steps take.

use std::time::Instant;

use remat_core::StepMark;

/// A clock that runs while a planned step does.
#[derive(Debug, Default)]
pub(super) struct StepClock {
    /// The guide of the step that runs, by its hash, and when it began.
    began: Option<(u64, Instant)>,
}

impl StepClock {
    /// The program began, ended or left a planned step. The guide of one that ended, by its hash, and how many
    /// nanoseconds it took.
    pub(super) fn note(&mut self, mark: StepMark) -> Option<(u64, u64)> {
        match (mark, self.began.take()) {
            (StepMark::Begun(guide), _) => {
                self.began = Some((guide, Instant::now()));
                None
            }
            (StepMark::Became(guide), Some((_, began))) => {
                self.began = Some((guide, began));
                None
            }
            (StepMark::Ended(guide), Some((begun, began))) if begun == guide => {
                let took = began.elapsed().as_nanos();
                Some((guide, u64::try_from(took).unwrap_or(u64::MAX)))
            }
            (StepMark::Ended(_) | StepMark::Left | StepMark::Became(_), _) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The guide whose step took some time, after these marks.
    fn told(marks: &[StepMark]) -> Option<u64> {
        let mut clock = StepClock::default();
        let told = marks.iter().map(|&mark| clock.note(mark));
        told.last().flatten().map(|(guide, _)| guide)
    }

    #[test]
    fn a_step_that_goes_on_as_another_is_timed_as_that() {
        use StepMark::{Became, Begun, Ended, Left};
        assert_eq!(told(&[Begun(1), Ended(1)]), Some(1));
        assert_eq!(told(&[Begun(1), Became(2), Ended(2)]), Some(2));
        assert_eq!(told(&[Begun(1), Became(2), Ended(1)]), None);
        assert_eq!(told(&[Begun(1), Left, Became(2), Ended(2)]), None);
    }
}
