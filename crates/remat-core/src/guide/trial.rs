//! Whether a plan pays by the clock. Its step runs with it and without it in turn, and the shorter way stays.
//!
//! A plan is made of measured times of single ops. What comes between ops, such as the time to follow the plan, is not
//! in them, so a plan that saves little is tried where a front end tells how long steps take.

use super::plan::Guide;

/// A plan is tried that saves less than this part of the time of the step's ops.
const SURE: f64 = 0.03;

/// Steps with the plan before the first without it. The first is not measured.
const WARM: u32 = 3;

/// Steps in a row one way. The first is not measured: it begins with what the other way left in memory.
const BLOCK: u32 = 3;

/// Blocks of each way.
const ROUNDS: u32 = 3;

/// Steps of a trial.
const ALL: u32 = WARM + 2 * BLOCK * ROUNDS;

/// The result of a trial so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It goes on.
    Open,
    /// The plan stays.
    Stays,
    /// The plan is given up.
    Falls,
}

/// The steps of a plan so far, in nanoseconds.
#[derive(Debug, Default)]
pub(super) struct Trial {
    steps: u32,
    planned: Vec<u64>,
    online: Vec<u64>,
}

impl Trial {
    /// The trial of a guide; `None` for one that saves enough.
    pub(super) fn of(guide: &Guide) -> Option<Trial> {
        let saved = guide.online().overhead() - guide.planned().overhead();
        (saved < SURE).then(Trial::default)
    }

    /// Whether the next step runs without the plan.
    pub(super) fn rests(&self) -> bool {
        rests(self.steps)
    }

    /// The next step took so long.
    pub(super) fn ended(&mut self, took: u64) -> Verdict {
        let step = self.steps;
        self.steps += 1;
        let rested = rests(step);
        let first = step == 0 || rested != rests(step - 1);
        let times = if rested {
            &mut self.online
        } else {
            &mut self.planned
        };
        if !first {
            times.push(took);
        }
        let planned = median(&mut self.planned);
        // A step that takes half as long again without the plan is told from noise at once.
        if rested && took > planned.saturating_add(planned / 2) {
            return Verdict::Stays;
        }
        if self.steps < ALL {
            return Verdict::Open;
        }
        // The plan goes where steps are shorter without it by a fiftieth. Whatever else the machine does makes steps
        // longer, so the shortest ones are compared.
        let planned = least(&self.planned);
        if least(&self.online) < planned - planned / 50 {
            Verdict::Falls
        } else {
            Verdict::Stays
        }
    }
}

/// Whether the step of this number runs without the plan.
fn rests(step: u32) -> bool {
    step >= WARM && (step - WARM) / BLOCK % 2 == 0
}

fn least(times: &[u64]) -> u64 {
    times.iter().copied().min().unwrap_or_default()
}

fn median(times: &mut [u64]) -> u64 {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The verdict over steps of so many nanoseconds with the plan and without it, and the steps that it took.
    fn tried(planned: u64, online: u64) -> (Verdict, u32) {
        let mut trial = Trial::default();
        for step in 1.. {
            let took = if trial.rests() { online } else { planned };
            match trial.ended(took) {
                Verdict::Open => {}
                verdict => return (verdict, step),
            }
        }
        unreachable!("a trial ends")
    }

    #[test]
    fn a_plan_falls_where_steps_are_shorter_without_it() {
        assert_eq!(tried(100, 97), (Verdict::Falls, ALL));
        assert_eq!(tried(100, 99), (Verdict::Stays, ALL));
        assert_eq!(tried(97, 100), (Verdict::Stays, ALL));
        assert_eq!(tried(0, 0), (Verdict::Stays, ALL));
        assert_eq!(tried(u64::MAX, u64::MAX), (Verdict::Stays, ALL));
    }

    #[test]
    fn a_plan_does_not_fall_where_another_program_makes_most_of_its_steps_longer() {
        let mut trial = Trial::default();
        for step in 0..ALL {
            let busy = step % 4 != 0 && !trial.rests();
            let took = if trial.rests() {
                105
            } else {
                100 + 40 * u64::from(busy)
            };
            assert_ne!(trial.ended(took), Verdict::Falls, "step {step}");
        }
    }

    #[test]
    fn a_step_that_takes_far_longer_without_the_plan_ends_the_trial() {
        assert_eq!(tried(100, 151), (Verdict::Stays, WARM + 1));
    }

    #[test]
    fn both_ways_take_turns_and_the_first_step_of_each_turn_does_not_count() {
        let mut trial = Trial::default();
        let (mut planned, mut online) = (0, 0);
        for step in 0..ALL {
            let first = step == 0 || rests(step) != rests(step - 1);
            let took = match (trial.rests(), first) {
                (_, true) => 1,
                (true, false) => 105,
                (false, false) => 100,
            };
            online += u32::from(trial.rests());
            planned += u32::from(!trial.rests());
            assert_ne!(trial.ended(took), Verdict::Falls);
        }
        assert_eq!(online, BLOCK * ROUNDS);
        assert_eq!(planned, WARM + BLOCK * ROUNDS);
        assert_eq!(trial.online, [105; (ROUNDS * (BLOCK - 1)) as usize]);
        let all_but_first = WARM - 1 + ROUNDS * (BLOCK - 1);
        assert_eq!(trial.planned, vec![100; all_but_first as usize]);
    }
}
