//! Planning time against the length of the chain (Rotor, figure 5), on synthetic chains.

use super::{
    Chain, ChainError, Description, PlanError, Progress, Resolution, Stage, Strategy, everything,
    plan,
};
use std::time::Instant;

/// Lengths tried in turn; 339 is that of the paper's longest network.
const STAGES: [usize; 12] = [16, 24, 34, 48, 68, 96, 136, 192, 240, 339, 480, 680];

/// A plan is made again, at most so often, until this many seconds are spent on it; the shortest time counts.
const REPEATS: usize = 5;
const ENOUGH: f64 = 0.05;

/// Planning time is taken to grow no faster than with this power of the stages.
const STEEPEST: f64 = 5.0;

/// Budgets that plans are timed for, in parts of what keeping everything takes.
pub const PARTS: [f64; 3] = [1.0 / 3.0, 1.0 / 2.0, 2.0 / 3.0];

/// The time that planning a chain took.
pub struct Timing {
    /// Stages of the chain.
    pub stages: usize,
    /// Budgets in bytes and seconds for a plan, by [`PARTS`].
    pub runs: [(u64, f64); PARTS.len()],
}

impl Timing {
    /// The seconds of its plans, in order: the shortest, the median, the longest.
    pub fn seconds(&self) -> [f64; PARTS.len()] {
        let mut seconds = self.runs.map(|(_, seconds)| seconds);
        seconds.sort_by(f64::total_cmp);
        seconds
    }
}

/// A strategy on chains of rising length.
pub struct Growth {
    /// The strategy.
    pub strategy: Strategy,
    /// By length.
    pub timings: Vec<Timing>,
    /// Why no longer chains were tried, if any are left.
    pub stopped: Option<Stop>,
}

/// Why a strategy was not timed on chains of so many stages.
#[derive(Clone, Debug, PartialEq)]
pub enum Stop {
    /// The limit.
    Late {
        /// Stages of the chain.
        stages: usize,
        /// Seconds that it could take.
        could: f64,
        /// Seconds spent before.
        spent: f64,
    },
    /// A refusal.
    Refused(PlanError),
}

impl Growth {
    /// Times a strategy on longer and longer chains, the shortest one in any case, while it is sure to stay within so
    /// many seconds.
    ///
    /// # Errors
    /// None for the chains that are timed: [`ChainError`] is what making a chain may give.
    pub fn measure(
        strategy: Strategy,
        limit: f64,
        progress: &mut Progress,
    ) -> Result<Growth, ChainError> {
        let (mut timings, mut stopped) = (Vec::new(), None);
        let start = Instant::now();
        for stages in STAGES {
            let spent = start.elapsed().as_secs_f64();
            let could = expected(&timings, stages);
            if !timings.is_empty() && spent + could > limit {
                stopped = Some(Stop::Late {
                    stages,
                    could,
                    spent,
                });
                break;
            }
            match timing(strategy, &residual(stages)?, progress) {
                Ok(timing) => timings.push(timing),
                Err(refused) => {
                    stopped = Some(Stop::Refused(refused));
                    break;
                }
            }
        }
        Ok(Growth {
            strategy,
            timings,
            stopped,
        })
    }

    /// The power of the length that planning time grows with: the slope of the straight line through the logarithms of
    /// the longer half of the lengths, by least squares; `None` of fewer than two lengths.
    pub fn slope(&self) -> Option<f64> {
        let log = |timing: &Timing| {
            let [_, median, _] = timing.seconds();
            ((timing.stages as f64).ln(), median.max(1e-9).ln())
        };
        let longer = &self.timings[self.timings.len() / 2..];
        let logs: Vec<(f64, f64)> = longer.iter().map(log).collect();
        let count = logs.len() as f64;
        let mean_x = logs.iter().map(|(x, _)| x).sum::<f64>() / count;
        let mean_y = logs.iter().map(|(_, y)| y).sum::<f64>() / count;
        let spread: f64 = logs.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
        let common: f64 = logs.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
        (logs.len() > 1).then_some(common / spread)
    }
}

/// Seconds that this length takes at most, by those of the length before.
fn expected(timings: &[Timing], stages: usize) -> f64 {
    timings.last().map_or(0.0, |last| {
        let longer = stages as f64 / last.stages as f64;
        last.seconds().iter().sum::<f64>() * longer.powf(STEEPEST)
    })
}

/// Makes plans of a chain within several budgets.
fn timing(strategy: Strategy, chain: &Chain, progress: &mut Progress) -> Result<Timing, PlanError> {
    let everything = everything(chain)?;
    let mut runs = [(0, 0.0); PARTS.len()];
    for (place, part) in PARTS.into_iter().enumerate() {
        let budget = (everything as f64 * part) as u64;
        let mut show = |of_plan| progress((place as f64 + of_plan) / PARTS.len() as f64);
        runs[place] = (budget, shortest(chain, budget, strategy, &mut show)?);
    }
    Ok(Timing {
        stages: chain.len(),
        runs,
    })
}

/// Seconds that a plan takes; of several times, the shortest.
fn shortest(
    chain: &Chain,
    budget: u64,
    strategy: Strategy,
    progress: &mut Progress,
) -> Result<f64, PlanError> {
    let (mut shortest, mut spent) = (f64::INFINITY, 0.0);
    for _ in 0..REPEATS {
        let start = Instant::now();
        plan(chain, budget, strategy, Resolution::default(), progress)?;
        let seconds = start.elapsed().as_secs_f64();
        shortest = seconds.min(shortest);
        spent += seconds;
        if spent >= ENOUGH {
            break;
        }
    }
    Ok(shortest)
}

const MIB: f64 = 1_048_576.0;

/// Levels of a network: from one to the next, activations take half the bytes.
const LEVELS: usize = 4;

/// A chain in the form of a deep residual network: so many stages in four levels, times and sizes of each level uneven
/// by a quarter up and down, and a loss that takes next to nothing. The same length always gives the same chain.
fn residual(stages: usize) -> Result<Chain, ChainError> {
    Chain::new(Description {
        input_bytes: MIB as u64,
        input_gradient_bytes: Some(0),
        stages: (1..=stages).map(|l| stage(l, stages)).collect(),
        about: Default::default(),
    })
}

fn stage(l: usize, stages: usize) -> Stage {
    if l == stages {
        return loss();
    }
    let level = LEVELS * (l - 1) / stages;
    let bytes = |mib: f64| (mib * MIB / f64::from(1 << level)) as u64;
    Stage {
        forward_time: 1.5 * uneven(l, 1),
        backward_time: 3.0 * uneven(l, 2),
        activation_bytes: bytes(12.0),
        saved_bytes: bytes(60.0 * uneven(l, 3)),
        forward_overhead_bytes: bytes(4.0 * uneven(l, 4)),
        backward_overhead_bytes: bytes(12.0 * uneven(l, 5)),
        ..Stage::default()
    }
}

fn loss() -> Stage {
    Stage {
        forward_time: 0.01,
        backward_time: 0.01,
        activation_bytes: 4,
        saved_bytes: 4096,
        ..Stage::default()
    }
}

/// From 0.75 to 1.25, without a pattern along the stages: fractions of multiples of the golden ratio are spread evenly
/// (Weyl 1916).
fn uneven(l: usize, column: usize) -> f64 {
    const GOLDEN: f64 = 0.618_033_988_749_894_8;
    let turn = (l * l) as f64 * GOLDEN * GOLDEN.powi(column as i32);
    0.75 + 0.5 * turn.fract()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::ControlFlow;

    #[test]
    fn a_chain_has_its_length_and_its_numbers_their_bounds() {
        for stages in [1, 2, 7, 500] {
            let chain = residual(stages).unwrap();
            assert_eq!(chain.len(), stages);
            assert_eq!(chain, residual(stages).unwrap());
            assert_eq!(chain.stage(stages).activation_bytes, 4);
        }
        let chain = residual(500).unwrap();
        let times = chain.stages()[..499].iter().map(|stage| stage.forward_time);
        let (least, most) = times.fold((9.0f64, 0.0f64), |(least, most), time| {
            (least.min(time), most.max(time))
        });
        assert!((1.125..1.14).contains(&least) && (1.86..1.875).contains(&most));
    }

    #[test]
    fn longer_chains_are_timed_as_long_as_the_limit_allows() {
        let growth = Growth::measure(Strategy::Persistent, 1e-9, &mut |_| {
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(growth.timings.len(), 1);
        let timing = &growth.timings[0];
        assert_eq!(timing.stages, STAGES[0]);
        let budgets = timing.runs.map(|(budget, _)| budget);
        assert!(budgets[0] < budgets[1] && budgets[1] < budgets[2]);
        let [least, median, most] = timing.seconds();
        assert!(0.0 < least && least <= median && median <= most);
        assert!(expected(&growth.timings, 32) >= 16.0 * (least + median + most));
    }

    #[test]
    fn the_slope_is_the_power_that_time_grows_with() {
        let timing = |stages: usize| {
            // Short chains take as long as any: only the longer half counts.
            let seconds = 1e-9 * (stages.max(100) as f64).powi(3);
            Timing {
                stages,
                runs: [(1, seconds / 2.0), (1, seconds), (1, 3.0 * seconds)],
            }
        };
        let of = |lengths: &[usize]| Growth {
            strategy: Strategy::Persistent,
            timings: lengths.iter().map(|&length| timing(length)).collect(),
            stopped: None,
        };
        let slope = of(&[10, 20, 50, 100, 200, 400]).slope().unwrap();
        assert!((slope - 3.0).abs() < 1e-9, "{slope}");
        assert_eq!(of(&[]).slope(), None);
        assert_eq!(of(&[10]).slope(), None);
    }
}
