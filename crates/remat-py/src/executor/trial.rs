//! Whether a plan pays by the clock. Its step runs with it and without it in turn, and the shorter way stays.
//!
//! A plan is made of measured times of single ops. What comes between ops, such as the time to follow the plan, is not
//! in them, so a plan that saves little is tried.

use std::time::{Duration, Instant};

use remat_core::{Engine, StepMark};
use remat_plan::step::PlannedStep;
use rustc_hash::FxHashMap;

/// A plan is tried that saves less than this part of the time of the step's ops.
const SURE: f64 = 0.03;

/// Steps with the plan before the first without it. The first is not measured.
const WARM: u32 = 3;

/// Steps in a row one way. The first is not measured: it begins with what the other way left in memory.
const BLOCK: u32 = 3;

/// Blocks of each way.
const ROUNDS: u32 = 3;

/// A step without the plan that takes so many times one with it ends the trial.
const FAR: f64 = 1.5;

/// The plan goes where steps without it take less than this part of those with it.
const SHORTER: f64 = 0.98;

/// The result of a trial so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// It goes on, the next step with the plan or without it.
    Goes { rests: bool },
    /// The plan stays.
    Stays,
    /// The plan is given up.
    Falls,
}

/// The steps of a plan so far.
#[derive(Debug, Default)]
struct Trial {
    steps: u32,
    planned: Vec<Duration>,
    online: Vec<Duration>,
}

impl Trial {
    /// A step took so long.
    fn ended(&mut self, took: Duration) -> Verdict {
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
        if rested && took > median(&self.planned).mul_f64(FAR) {
            return Verdict::Stays;
        }
        if self.steps < WARM + 2 * BLOCK * ROUNDS {
            return Verdict::Goes {
                rests: rests(self.steps),
            };
        }
        if median(&self.online) < median(&self.planned).mul_f64(SHORTER) {
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

fn median(times: &[Duration]) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// The trials of all plans.
#[derive(Debug, Default)]
pub(super) struct Trials {
    open: FxHashMap<u64, Trial>,
    /// The step that runs, and when it began.
    began: Option<(u64, Instant)>,
}

impl Trials {
    /// Tries a plan, unless it saves enough.
    pub(super) fn open(&mut self, step: &PlannedStep) {
        let part = |again: u64, all: u64| again as f64 / all.max(1) as f64;
        let online = step.guide.online();
        let saved = part(online.replayed.0, online.first.0) - part(step.recompute_ns, step.cost_ns);
        if saved < SURE {
            self.open.insert(step.guide.hash(), Trial::default());
        }
    }

    /// Ends all trials: the plans are forgotten.
    pub(super) fn clear(&mut self) {
        self.open.clear();
        self.began = None;
    }

    /// The program began, ended or left a planned step.
    pub(super) fn note(&mut self, mark: StepMark, engine: &mut Engine) {
        match mark {
            StepMark::Begun(guide) => {
                self.began = self
                    .open
                    .contains_key(&guide)
                    .then(|| (guide, Instant::now()));
            }
            StepMark::Left => self.began = None,
            StepMark::Ended(guide) => {
                let began = self.began.take().filter(|&(begun, _)| begun == guide);
                let (Some((_, began)), Some(trial)) = (began, self.open.get_mut(&guide)) else {
                    return;
                };
                let verdict = trial.ended(began.elapsed());
                if let Verdict::Goes { rests } = verdict {
                    engine.rest_guide(guide, rests);
                    return;
                }
                self.open.remove(&guide);
                if verdict == Verdict::Falls {
                    engine.give_up_guide(guide);
                } else {
                    engine.rest_guide(guide, false);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The verdict over steps of so many milliseconds with the plan and without it, and the steps that it took.
    fn tried(planned: u64, online: u64) -> (Verdict, u32) {
        let mut trial = Trial::default();
        let mut rests = false;
        for step in 1.. {
            let took = Duration::from_millis(if rests { online } else { planned });
            match trial.ended(took) {
                Verdict::Goes { rests: next } => rests = next,
                verdict => return (verdict, step),
            }
        }
        unreachable!("a trial ends")
    }

    #[test]
    fn a_plan_falls_where_steps_are_shorter_without_it() {
        let all = WARM + 2 * BLOCK * ROUNDS;
        assert_eq!(tried(100, 97), (Verdict::Falls, all));
        assert_eq!(tried(100, 99), (Verdict::Stays, all));
        assert_eq!(tried(97, 100), (Verdict::Stays, all));
        assert_eq!(tried(0, 0), (Verdict::Stays, all));
    }

    #[test]
    fn a_step_that_takes_far_longer_without_the_plan_ends_the_trial() {
        assert_eq!(tried(100, 151), (Verdict::Stays, WARM + 1));
    }

    #[test]
    fn both_ways_take_turns_and_the_first_step_of_each_turn_does_not_count() {
        let mut trial = Trial::default();
        let (mut planned, mut online) = (0, 0);
        for step in 0..WARM + 2 * BLOCK * ROUNDS {
            let first = step == 0 || rests(step) != rests(step - 1);
            let took = match (rests(step), first) {
                (_, true) => 1,
                (true, false) => 105,
                (false, false) => 100,
            };
            online += u32::from(rests(step));
            planned += u32::from(!rests(step));
            let verdict = trial.ended(Duration::from_millis(took));
            assert_ne!(verdict, Verdict::Falls);
        }
        assert_eq!(online, BLOCK * ROUNDS);
        assert_eq!(planned, WARM + BLOCK * ROUNDS);
        let counted = |times: &[Duration], took| {
            assert!(times
                .iter()
                .all(|&time| time == Duration::from_millis(took)));
            times.len() as u32
        };
        assert_eq!(counted(&trial.online, 105), ROUNDS * (BLOCK - 1));
        assert_eq!(
            counted(&trial.planned, 100),
            WARM - 1 + ROUNDS * (BLOCK - 1)
        );
    }
}
