//! Words for chains and strategies that were not planned.

use crate::affordable::LeftOut;
use crate::arguments::PlanChain;
use crate::failure::Failure;
use remat_core::Bytes;
use remat_plan::chain::{PlanError, Strategy};
use serde_json::json;

/// A refusal to plan, told of the chain's file.
pub(super) fn refused(wanted: &PlanChain) -> impl Fn(PlanError) -> Failure + '_ {
    |error| {
        let place = wanted.chain.display();
        Failure::Input(match &error {
            PlanError::Infeasible {
                strategy,
                budget,
                smallest,
            } => format!(
                "{place}: no {strategy} plan fits in {} ({budget} bytes); use --budget {smallest} ({}) or more",
                Bytes(*budget),
                Bytes(*smallest)
            ),
            _ => format!("{place}: {error}"),
        })
    }
}

/// The line of a strategy that has no plan, among others that may have one.
pub(super) fn without(wanted: &PlanChain, strategy: Strategy, error: &PlanError) -> String {
    match error {
        PlanError::Infeasible { smallest, .. } if wanted.json => {
            let line = json!({"strategy": strategy.to_string(), "smallest_bytes": smallest});
            format!("{line}\n")
        }
        PlanError::Infeasible { smallest, .. } => format!(
            "{strategy:<12}  needs at least {} ({smallest} bytes)\n",
            Bytes(*smallest)
        ),
        other => {
            let reason = other.to_string();
            left_out(wanted, &LeftOut { strategy, reason })
        }
    }
}

/// The line of a strategy that was not planned.
pub(super) fn left_out(wanted: &PlanChain, left: &LeftOut) -> String {
    let LeftOut { strategy, reason } = left;
    if wanted.json {
        let line = json!({"strategy": strategy.to_string(), "left_out": reason});
        format!("{line}\n")
    } else {
        format!("{strategy:<12}  left out: {reason}\n")
    }
}
