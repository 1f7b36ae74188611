//! How long planning takes, by the length of the chain.

use super::synthetic;
use crate::failure::{complain, Failure};
use crate::progress;
use remat_plan::chain::{plan, Chain, PlanError, Progress, Resolution, Strategy};
use std::ops::ControlFlow;
use std::time::Instant;

/// Lengths tried in turn; 339 is that of the paper's longest network.
const STAGES: [usize; 12] = [16, 24, 34, 48, 68, 96, 136, 192, 240, 339, 480, 680];

/// Budgets, in parts of what keeping everything takes.
pub(super) const PARTS: [f64; 3] = [1.0 / 3.0, 1.0 / 2.0, 2.0 / 3.0];

/// A plan is made again, at most so often, until this many seconds are spent on it; the shortest time counts.
const REPEATS: usize = 5;
const ENOUGH: f64 = 0.05;

/// Planning time is taken to grow no faster than with this power of the stages.
const STEEPEST: f64 = 5.0;

/// What planning a chain took.
pub(super) struct Timing {
    pub(super) stages: usize,
    /// Budgets in bytes and seconds for a plan, by [`PARTS`].
    pub(super) runs: [(u64, f64); PARTS.len()],
}

impl Timing {
    /// The seconds of its plans, in order: the shortest, the median, the longest.
    pub(super) fn seconds(&self) -> [f64; PARTS.len()] {
        let mut seconds = self.runs.map(|(_, seconds)| seconds);
        seconds.sort_by(f64::total_cmp);
        seconds
    }
}

/// A strategy on chains of rising length.
pub(super) struct Growth {
    pub(super) strategy: Strategy,
    pub(super) timings: Vec<Timing>,
}

impl Growth {
    /// Times a strategy on longer and longer chains, the shortest ones in any case, while it is sure to stay within so many seconds;
    /// on standard error stands where it stopped.
    pub(super) fn measure(strategy: Strategy, limit: f64) -> Result<Growth, Failure> {
        let mut growth = Growth {
            strategy,
            timings: Vec::new(),
        };
        let start = Instant::now();
        for stages in STAGES {
            let spent = start.elapsed().as_secs_f64();
            let could = growth.expected(stages);
            if !growth.timings.is_empty() && spent + could > limit {
                growth.tell_stop(&format!(
                    "{stages} could take {could:.1} s more than the {spent:.1} s spent, and the limit is {limit} s; \
                     --growth={:.0} would do",
                    (2.0 * (spent + could)).ceil()
                ));
                break;
            }
            let chain = synthetic::residual(stages)
                .map_err(|error| Failure::Input(format!("{stages} stages: {error}")))?;
            match timing(strategy, &chain) {
                Ok(timing) => growth.timings.push(timing),
                Err(refused) => {
                    growth.tell_stop(&refused.to_string());
                    break;
                }
            }
        }
        Ok(growth)
    }

    /// Seconds that this length takes at most, by those of the length before.
    fn expected(&self, stages: usize) -> f64 {
        self.timings.last().map_or(0.0, |last| {
            let longer = stages as f64 / last.stages as f64;
            let seconds: f64 = last.seconds().iter().sum();
            seconds * longer.powf(STEEPEST)
        })
    }

    fn tell_stop(&self, reason: &str) {
        let strategy = self.strategy;
        let longest = self.timings.last().map_or(0, |last| last.stages);
        complain(format_args!(
            "remat: {strategy} is timed up to {longest} stages: {reason}"
        ));
    }

    /// The power of the length that planning time grows with: the slope of the straight line through the logarithms of the longer
    /// half of the lengths, by least squares; `None` of fewer than two lengths.
    pub(super) fn slope(&self) -> Option<f64> {
        let longer = &self.timings[self.timings.len() / 2..];
        let logs = longer.iter().map(|timing| {
            let [_, median, _] = timing.seconds();
            ((timing.stages as f64).ln(), median.max(1e-9).ln())
        });
        slope(&logs.collect::<Vec<_>>())
    }
}

fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let count = points.len() as f64;
    let mean_x = points.iter().map(|(x, _)| x).sum::<f64>() / count;
    let mean_y = points.iter().map(|(_, y)| y).sum::<f64>() / count;
    let spread: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    let common: f64 = points
        .iter()
        .map(|(x, y)| (x - mean_x) * (y - mean_y))
        .sum();
    (points.len() > 1).then_some(common / spread)
}

/// Makes plans of a chain within several budgets.
fn timing(strategy: Strategy, chain: &Chain) -> Result<Timing, PlanError> {
    let stages = chain.len();
    let bar = progress::planning(&format!("{strategy}, {stages} stages"));
    let everything = everything(chain)?;
    let mut runs = [(0, 0.0); PARTS.len()];
    for (place, part) in PARTS.into_iter().enumerate() {
        let mut show = |of_plan| {
            progress::planned(&bar, (place as f64 + of_plan) / PARTS.len() as f64);
            ControlFlow::Continue(())
        };
        let budget = (everything as f64 * part) as u64;
        runs[place] = (budget, shortest(chain, budget, strategy, &mut show)?);
    }
    bar.finish_and_clear();
    Ok(Timing { stages, runs })
}

fn everything(chain: &Chain) -> Result<u64, PlanError> {
    let go_on = &mut |_| ControlFlow::Continue(());
    plan(
        chain,
        u64::MAX,
        Strategy::None,
        Resolution::default(),
        go_on,
    )
    .map(|plan| plan.peak_bytes)
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

#[cfg(test)]
mod tests {
    use super::*;

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
        };
        let slope = of(&[10, 20, 50, 100, 200, 400]).slope().unwrap();
        assert!((slope - 3.0).abs() < 1e-9, "{slope}");
        assert_eq!(of(&[]).slope(), None);
        assert_eq!(of(&[10]).slope(), None);
    }

    #[test]
    fn longer_chains_are_timed_as_long_as_the_limit_allows() {
        let growth = Growth::measure(Strategy::Persistent, 1e-9).unwrap();
        assert_eq!(growth.timings.len(), 1);
        let timing = &growth.timings[0];
        assert_eq!(timing.stages, STAGES[0]);
        let budgets = timing.runs.map(|(budget, _)| budget);
        assert!(budgets[0] < budgets[1] && budgets[1] < budgets[2]);
        let [least, median, most] = timing.seconds();
        assert!(0.0 < least && least <= median && median <= most);
        assert!(growth.expected(32) >= 16.0 * (least + median + most));
    }
}
