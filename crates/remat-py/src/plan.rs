//! The offline planner, for Python: JSON in, JSON out.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use remat_plan::chain::{plan, verify, Chain, Plan, PlanError, Resolution, Strategy};
use remat_plan::cut::{partition, JointGraph, Nearest, Wishes};
use std::fmt;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// How often Ctrl-C is looked for.
const PATIENCE: Duration = Duration::from_millis(100);

/// The best plan of a chain, as the JSON that `remat plan chain --json` prints. `chain_json` is the text of CHAIN.json, `budget`
/// bytes, `slots` a number or `exact`.
///
/// Raises `ValueError(message)` for bad input, and `ValueError(message, smallest_bytes)` where the budget is too small.
#[pyfunction]
pub(crate) fn plan_chain(
    py: Python<'_>,
    chain_json: &str,
    budget: u64,
    strategy: &str,
    slots: &str,
) -> PyResult<String> {
    let chain: Chain = chain_json.parse().map_err(bad)?;
    let strategy: Strategy = strategy.parse().map_err(bad)?;
    let resolution: Resolution = slots.parse().map_err(bad)?;
    let planned = py.detach(|| {
        let mut interrupt = None;
        let mut looked = Instant::now();
        let mut progress = |_| {
            if looked.elapsed() < PATIENCE {
                return ControlFlow::Continue(());
            }
            looked = Instant::now();
            match Python::attach(|py| py.check_signals()) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    interrupt = Some(error);
                    ControlFlow::Break(())
                }
            }
        };
        let planned = plan(&chain, budget, strategy, resolution, &mut progress);
        planned.map_err(|error| interrupt.unwrap_or_else(|| refusal(&error)))
    })?;
    serde_json::to_string(&planned).map_err(bad)
}

/// Makespan and peak bytes of a plan, recomputed by code that shares nothing with the planners. Raises `ValueError` where it is not
/// valid for the chain.
#[pyfunction]
pub(crate) fn verify_chain(chain_json: &str, plan_json: &str) -> PyResult<(f64, u64)> {
    let chain: Chain = chain_json.parse().map_err(bad)?;
    let plan: Plan = serde_json::from_str(plan_json).map_err(bad)?;
    let verified = verify(&chain, &plan.sequence).map_err(bad)?;
    Ok((verified.makespan, verified.peak_bytes))
}

fn bad(error: impl fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

fn refusal(error: &PlanError) -> PyErr {
    match error {
        PlanError::Infeasible { smallest, .. } => {
            PyValueError::new_err((error.to_string(), *smallest))
        }
        _ => bad(error),
    }
}

/// What to save of a joint graph, as the JSON that `remat plan cut --json` prints. `graph_json` is the text of GRAPH.json; nodes in `ban`
/// are not recomputed either, bans of those in `allow` are lifted. Of several minimum cuts it is the one nearest the backward
/// pass, or with `reweight=False` the one nearest the inputs.
///
/// Raises `ValueError` for bad input, and where something may be neither saved nor recomputed.
#[pyfunction]
#[pyo3(signature = (graph_json, *, ban = Vec::new(), allow = Vec::new(), reweight = true))]
pub(crate) fn plan_cut(
    py: Python<'_>,
    graph_json: &str,
    ban: Vec<String>,
    allow: Vec<String>,
    reweight: bool,
) -> PyResult<String> {
    let nearest = match reweight {
        true => Nearest::Backward,
        false => Nearest::Forward,
    };
    let wishes = Wishes {
        ban,
        allow,
        nearest,
    };
    py.detach(|| {
        let graph: JointGraph = graph_json.parse().map_err(bad)?;
        let cut = partition(&graph, &wishes).map_err(bad)?;
        serde_json::to_string(&cut).map_err(bad)
    })
}
