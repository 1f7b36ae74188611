//! Chains planned for all budgets by strategy, and planning timed.

use crate::affordable::{self, LeftOut};
use crate::failure::{Failure, complain};
use crate::progress;
use remat_core::Bytes;
use remat_figures::tables::chains::{Curve, Planned};
use remat_plan::chain::{self, Chain, Growth, PlanError, Stop, Strategy};

/// Plans chains by all strategies named, or those that their lengths allow; on standard error stands what is left out.
pub(super) fn of<'a>(
    chains: &'a [(String, Chain)],
    named: &[Strategy],
) -> Result<Vec<Planned<'a>>, Failure> {
    let planned = |(name, chain): &'a (String, Chain)| planned(name, chain, named);
    chains.iter().map(planned).collect()
}

fn planned<'a>(
    name: &'a str,
    chain: &'a Chain,
    named: &[Strategy],
) -> Result<Planned<'a>, Failure> {
    chain::everything(chain).map_err(|error| Failure::Input(format!("{name}: {error}")))?;
    let (wanted, out) = affordable::strategies(named, chain.len());
    let mut curves: Vec<Curve> = wanted
        .into_iter()
        .map(|strategy| curve(chain, strategy, name))
        .collect();
    curves.extend(out.into_iter().map(without));
    curves.sort_by_key(|curve| {
        let same = |other: &Strategy| *other == curve.strategy;
        Strategy::ALL.iter().position(same)
    });
    for curve in &curves {
        if let Err(reason) = &curve.points {
            complain(format_args!(
                "remat: {name}: {} is left out: {reason}",
                curve.strategy
            ));
        }
    }
    Ok(Planned {
        name,
        chain,
        curves,
    })
}

fn without(left: LeftOut) -> Curve {
    Curve {
        strategy: left.strategy,
        points: Err(left.reason),
    }
}

fn curve(chain: &Chain, strategy: Strategy, name: &str) -> Curve {
    let points = progress::while_planning(&format!("{name}, {strategy}"), |show| {
        chain::best_curve(chain, strategy, show)
    });
    let reason = |error| match error {
        PlanError::Infeasible { smallest, .. } => format!(
            "it needs at least {} ({smallest} bytes), more than keeping everything",
            Bytes(smallest)
        ),
        other => other.to_string(),
    };
    Curve {
        strategy,
        points: points.map_err(reason),
    }
}

/// Times planning, each strategy for at most so many seconds; a line on standard error says where it stopped.
pub(super) fn growths(limit: f64) -> Result<Vec<Growth>, Failure> {
    let timed = |strategy: Strategy| {
        let heading = format!("{strategy}, longer and longer chains");
        let growth =
            progress::while_planning(&heading, |show| Growth::measure(strategy, limit, show));
        let growth = growth.map_err(|error| Failure::Input(error.to_string()))?;
        if let Some(stop) = &growth.stopped {
            let longest = growth.timings.last().map_or(0, |last| last.stages);
            let reason = told(stop, limit);
            complain(format_args!(
                "remat: {strategy} is timed up to {longest} stages: {reason}"
            ));
        }
        Ok(growth)
    };
    [Strategy::Persistent, Strategy::Floating]
        .into_iter()
        .map(timed)
        .collect()
}

fn told(stop: &Stop, limit: f64) -> String {
    match stop {
        Stop::Late {
            stages,
            could,
            spent,
        } => format!(
            "{stages} could take {could:.1} s more than the {spent:.1} s spent, and the limit is {limit} s; \
             --growth={:.0} would do",
            (2.0 * (spent + could)).ceil()
        ),
        Stop::Refused(refused) => refused.to_string(),
    }
}
