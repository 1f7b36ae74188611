//! Strategies that have a handful of plans: the best one that fits is taken.

use crate::chain::baselines::{segments, treeverse};
use crate::chain::model::chain::Chain;
use crate::chain::model::cost::{Cost, Costed, cost_of};
use crate::chain::model::error::PlanError;
use crate::chain::model::progress::Progress;
use crate::chain::model::sequence::{Op, segmented};
use crate::chain::model::strategy::Strategy;
use std::ops::ControlFlow;

/// The plan of least makespan within the budget.
pub(crate) fn best(
    chain: &Chain,
    budget: u64,
    strategy: Strategy,
    progress: &mut Progress,
) -> Result<Costed, PlanError> {
    let mut best: Option<Costed> = None;
    let mut smallest = u64::MAX;
    let long = each(chain, strategy, progress, |ops, cost| {
        smallest = smallest.min(cost.peak);
        let rank = |cost: &Cost| (cost.makespan, cost.peak);
        let better = |best: &Costed| rank(&cost) < rank(&best.1);
        if cost.peak <= budget && best.as_ref().is_none_or(better) {
            best = Some((ops, cost));
        }
    })?;
    match (best, long) {
        (Some(best), _) => Ok(best),
        (None, Some(long)) => Err(long),
        (None, None) => Err(PlanError::Infeasible {
            strategy: strategy.to_string(),
            budget,
            smallest,
        }),
    }
}

/// Visits every plan. Returns the error of plans that were left out because they are too long, if there are any.
pub(crate) fn each(
    chain: &Chain,
    strategy: Strategy,
    progress: &mut Progress,
    mut visit: impl FnMut(Vec<Op>, Cost),
) -> Result<Option<PlanError>, PlanError> {
    let stages = chain.len();
    let mut cut = |starts: Vec<usize>| {
        let ops = segmented(stages, &starts);
        let cost = cost_of(chain, &ops);
        visit(ops, cost);
    };
    match strategy {
        Strategy::Periodic(Some(count)) => cut(segments::periodic(stages, count.get())),
        Strategy::Periodic(None) => {
            segments::counts(stages).for_each(|count| cut(segments::periodic(stages, count)));
        }
        Strategy::ChenSqrt => cut(segments::square_root(stages)),
        Strategy::ChenGreedy => {
            let allowances = segments::allowances(chain).into_iter();
            allowances.for_each(|bytes| cut(segments::greedy(chain, bytes)));
        }
        Strategy::Treeverse => return each_treeverse(chain, progress, visit),
        Strategy::None
        | Strategy::Persistent
        | Strategy::Floating
        | Strategy::Free
        | Strategy::Revolve => cut(vec![1]),
    }
    Ok(None)
}

fn each_treeverse(
    chain: &Chain,
    progress: &mut Progress,
    mut visit: impl FnMut(Vec<Op>, Cost),
) -> Result<Option<PlanError>, PlanError> {
    let counts = treeverse::counts(chain.len());
    for (done, &count) in counts.iter().enumerate() {
        let ops = match treeverse::sequence(chain.len(), count) {
            Ok(ops) => ops,
            // The fewer checkpoints, the longer.
            Err(long) => return Ok(Some(long)),
        };
        let cost = cost_of(chain, &ops);
        visit(ops, cost);
        if let ControlFlow::Break(()) = progress(done as f64 / counts.len() as f64) {
            return Err(PlanError::Interrupted);
        }
    }
    Ok(None)
}
