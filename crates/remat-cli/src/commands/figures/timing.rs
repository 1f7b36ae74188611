//! How long planning takes, by the length of the chain.

use super::curves::everything;
use super::synthetic;
use crate::failure::{complain, Failure};
use crate::progress;
use remat_figures::tables::chains::{Growth, Timing, PARTS};
use remat_plan::chain::{plan, Chain, PlanError, Progress, Resolution, Strategy};
use std::time::Instant;

const STRATEGIES: [Strategy; 2] = [Strategy::Persistent, Strategy::Floating];

/// Lengths tried in turn; 339 is that of the paper's longest network.
const STAGES: [usize; 12] = [16, 24, 34, 48, 68, 96, 136, 192, 240, 339, 480, 680];

/// A plan is made again, at most so often, until this many seconds are spent on it; the shortest time counts.
const REPEATS: usize = 5;
const ENOUGH: f64 = 0.05;

/// Planning time is taken to grow no faster than with this power of the stages.
const STEEPEST: f64 = 5.0;

/// Times planning, each strategy for at most so many seconds.
pub(super) fn measure(limit: f64) -> Result<Vec<Growth>, Failure> {
    STRATEGIES
        .into_iter()
        .map(|strategy| growth(strategy, limit))
        .collect()
}

/// Times a strategy on longer and longer chains, the shortest one in any case, while it is sure to stay within so many seconds;
/// a line on standard error says where it stopped.
fn growth(strategy: Strategy, limit: f64) -> Result<Growth, Failure> {
    let mut timings: Vec<Timing> = Vec::new();
    let start = Instant::now();
    for stages in STAGES {
        let spent = start.elapsed().as_secs_f64();
        let could = expected(&timings, stages);
        if !timings.is_empty() && spent + could > limit {
            let reason = format!(
                "{stages} could take {could:.1} s more than the {spent:.1} s spent, and the limit is {limit} s; \
                 --growth={:.0} would do",
                (2.0 * (spent + could)).ceil()
            );
            tell_stop(strategy, &timings, &reason);
            break;
        }
        let chain = synthetic::residual(stages)
            .map_err(|error| Failure::Input(format!("{stages} stages: {error}")))?;
        match timing(strategy, &chain) {
            Ok(timing) => timings.push(timing),
            Err(refused) => {
                tell_stop(strategy, &timings, &refused.to_string());
                break;
            }
        }
    }
    Ok(Growth { strategy, timings })
}

/// Seconds that this length takes at most, by those of the length before.
fn expected(timings: &[Timing], stages: usize) -> f64 {
    timings.last().map_or(0.0, |last| {
        let longer = stages as f64 / last.stages as f64;
        last.seconds().iter().sum::<f64>() * longer.powf(STEEPEST)
    })
}

fn tell_stop(strategy: Strategy, timings: &[Timing], reason: &str) {
    let longest = timings.last().map_or(0, |last| last.stages);
    complain(format_args!(
        "remat: {strategy} is timed up to {longest} stages: {reason}"
    ));
}

/// Makes plans of a chain within several budgets.
fn timing(strategy: Strategy, chain: &Chain) -> Result<Timing, PlanError> {
    let stages = chain.len();
    let everything = everything(chain)?;
    let runs = progress::while_planning(&format!("{strategy}, {stages} stages"), |show| {
        let mut runs = [(0, 0.0); PARTS.len()];
        for (place, part) in PARTS.into_iter().enumerate() {
            let budget = (everything as f64 * part) as u64;
            let mut show = |of_plan| show((place as f64 + of_plan) / PARTS.len() as f64);
            runs[place] = (budget, shortest(chain, budget, strategy, &mut show)?);
        }
        Ok(runs)
    })?;
    Ok(Timing { stages, runs })
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
    fn longer_chains_are_timed_as_long_as_the_limit_allows() {
        let growth = growth(Strategy::Persistent, 1e-9).unwrap();
        assert_eq!(growth.timings.len(), 1);
        let timing = &growth.timings[0];
        assert_eq!(timing.stages, STAGES[0]);
        let budgets = timing.runs.map(|(budget, _)| budget);
        assert!(budgets[0] < budgets[1] && budgets[1] < budgets[2]);
        let [least, median, most] = timing.seconds();
        assert!(0.0 < least && least <= median && median <= most);
        assert!(expected(&growth.timings, 32) >= 16.0 * (least + median + most));
    }
}
