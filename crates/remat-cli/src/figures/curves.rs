//! Chains planned for all budgets, by strategy.

use super::titles;
use crate::affordable::{self, LeftOut};
use crate::failure::{complain, Failure};
use crate::progress;
use remat_core::Bytes;
use remat_plan::chain::{self, Chain, PlanError, Point, Resolution, Strategy};
use std::ops::ControlFlow;

/// A chain and its curves.
pub(super) struct Planned<'a> {
    pub(super) name: &'a str,
    pub(super) title: String,
    pub(super) chain: &'a Chain,
    /// Bytes of a step that keeps everything.
    pub(super) everything: u64,
    /// By strategy, in the order in which they are listed.
    pub(super) curves: Vec<Curve>,
}

/// Memory against time of a strategy.
pub(super) struct Curve {
    pub(super) strategy: Strategy,
    /// Peaks rise, makespans fall, and the first peak is the smallest feasible budget; or why there are none.
    pub(super) points: Result<Vec<Point>, String>,
}

impl Curve {
    /// The smallest feasible budget, in bytes.
    pub(super) fn smallest(&self) -> Option<u64> {
        let points = self.points.as_ref().ok()?;
        points.first().map(|point| point.peak_bytes)
    }
}

/// Plans chains by all strategies named, or those that their lengths allow; on standard error stands what is left out.
pub(super) fn of<'a>(
    chains: &'a [(String, Chain)],
    named: &[Strategy],
) -> Result<Vec<Planned<'a>>, Failure> {
    let titles = titles::of(chains.iter().map(|(name, _)| name.as_str()));
    let both = chains.iter().zip(titles);
    both.map(|((name, chain), title)| planned(name, title, chain, named))
        .collect()
}

fn planned<'a>(
    name: &'a str,
    title: String,
    chain: &'a Chain,
    named: &[Strategy],
) -> Result<Planned<'a>, Failure> {
    let (wanted, out) = affordable::strategies(named, chain.len());
    let mut curves: Vec<Curve> = wanted
        .into_iter()
        .map(|strategy| curve(chain, strategy, &title))
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
        everything: everything(chain)
            .map_err(|error| Failure::Input(format!("{name}: {error}")))?,
        name,
        title,
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

fn curve(chain: &Chain, strategy: Strategy, title: &str) -> Curve {
    let bar = progress::planning(&format!("{title}, {strategy}"));
    let mut show = |part| {
        progress::planned(&bar, part);
        ControlFlow::Continue(())
    };
    let points = chain::curve(chain, None, strategy, Resolution::default(), &mut show);
    bar.finish_and_clear();
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

fn everything(chain: &Chain) -> Result<u64, PlanError> {
    let go_on = &mut |_| ControlFlow::Continue(());
    let all = chain::plan(
        chain,
        u64::MAX,
        Strategy::None,
        Resolution::default(),
        go_on,
    )?;
    Ok(all.peak_bytes)
}
