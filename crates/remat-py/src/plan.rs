//! The offline planners for Python: JSON in, JSON out.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use remat_core::Bytes;
use remat_plan::chain::{
    Chain, Op, Plan, PlanError, Resolution, Strategy, needed_later, peak_of_run, plan, verify,
};
use remat_plan::cut::{self, Budgets, CutError, JointGraph, Nearest, Wishes, partition};
use remat_plan::step::{Planner, Search, Step, verify as verify_step};
use remat_trace::{Event, Rerun};
use serde::Serialize;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use crate::ffi::errors::value_error;

/// The time between two looks for Ctrl-C.
const PATIENCE: Duration = Duration::from_millis(100);

/// The best plan of a chain, as the JSON that `remat plan chain --json` prints. `chain_json` is the text of
/// CHAIN.json, `budget` bytes, `slots` a number or `exact`.
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
    let chain: Chain = chain_json.parse().map_err(value_error)?;
    let strategy: Strategy = strategy.parse().map_err(value_error)?;
    let resolution: Resolution = slots.parse().map_err(value_error)?;
    let planned = py.detach(|| {
        let mut patience = Patience::new();
        let planned = plan(&chain, budget, strategy, resolution, &mut |_| {
            patience.look()
        });
        planned.map_err(|error| patience.interrupt.unwrap_or_else(|| refusal(&error)))
    })?;
    serde_json::to_string(&planned).map_err(value_error)
}

/// Makespan and peak bytes of a plan, recomputed by code that shares nothing with the planners. Raises `ValueError`
/// where it is not valid for the chain.
#[pyfunction]
pub(crate) fn verify_chain(chain_json: &str, plan_json: &str) -> PyResult<(f64, u64)> {
    let chain: Chain = chain_json.parse().map_err(value_error)?;
    let plan: Plan = serde_json::from_str(plan_json).map_err(value_error)?;
    let verified = verify(&chain, &plan.sequence).map_err(value_error)?;
    Ok((verified.makespan, verified.peak_bytes))
}

/// The most bytes of activations, saved sets and gradients at once when autograd runs a sequence, dropping each
/// activation once nothing reads it. `sequence_json` is a list of pairs such as `["Fck", 1]`. Raises `ValueError`
/// where autograd cannot run it.
#[pyfunction]
pub(crate) fn peak_of_chain_run(chain_json: &str, sequence_json: &str) -> PyResult<u64> {
    let chain: Chain = chain_json.parse().map_err(value_error)?;
    let sequence: Vec<Op> = serde_json::from_str(sequence_json).map_err(value_error)?;
    peak_of_run(&chain, &sequence).map_err(value_error)
}

/// For each operation of a sequence, the activations that a later one reads before they are made again. Raises
/// `ValueError` for bad input.
#[pyfunction]
pub(crate) fn chain_needed_later(sequence_json: &str) -> PyResult<Vec<Vec<usize>>> {
    let sequence: Vec<Op> = serde_json::from_str(sequence_json).map_err(value_error)?;
    let needed = needed_later(&sequence).into_iter();
    Ok(needed.map(Vec::from_iter).collect())
}

fn refusal(error: &PlanError) -> PyErr {
    match error {
        PlanError::Infeasible { smallest, .. } => {
            PyValueError::new_err((error.to_string(), *smallest))
        }
        _ => value_error(error),
    }
}

/// The values to save of a joint graph, as the JSON that `remat plan cut --json` prints, within `budget` bytes if
/// given.
///
/// With `tradeoffs`, it also has, under that name, the peaks and times of all budgets. With `frontier` it has the plans
/// themselves, each with `peak_bytes`, `recompute_ns`, `saved`, `recomputed`, `lifted`, `backward`, `cost` and
/// `saved_bytes`, peaks rising. `graph_json` is the text of GRAPH.json. Nodes in `ban` are not recomputed either; bans
/// of nodes in `allow` are lifted. Of several minimum cuts it is the one nearest the backward pass, or with
/// `reweight=False` the one nearest the inputs.
///
/// Raises `ValueError(message)` for bad input, and where a node may be neither saved nor recomputed, and
/// `ValueError(message, smallest_bytes)` where the budget is too small.
#[allow(clippy::too_many_arguments)] // Each is a keyword in Python.
#[pyfunction]
#[pyo3(signature = (graph_json, *, budget = None, ban = Vec::new(), allow = Vec::new(), reweight = true, tradeoffs = false, frontier = false))]
pub(crate) fn plan_cut(
    py: Python<'_>,
    graph_json: &str,
    budget: Option<u64>,
    ban: Vec<String>,
    allow: Vec<String>,
    reweight: bool,
    tradeoffs: bool,
    frontier: bool,
) -> PyResult<String> {
    let nearest = if reweight {
        Nearest::Backward
    } else {
        Nearest::Forward
    };
    let wishes = Wishes {
        ban,
        allow,
        nearest,
    };
    py.detach(|| {
        let graph: JointGraph = graph_json.parse().map_err(value_error)?;
        if budget.is_none() && !tradeoffs && !frontier {
            let cut = partition(&graph, &wishes).map_err(value_error)?;
            return serde_json::to_string(&json_of(&cut)?).map_err(value_error);
        }
        let budgets = searched(&graph, &wishes)?;
        let mut answer = planned(&graph, &wishes, &budgets, budget)?;
        if tradeoffs {
            answer["tradeoffs"] = json_of(&budgets.tradeoffs())?;
        }
        if frontier {
            answer["frontier"] = json_of(&budgets.frontier())?;
        }
        serde_json::to_string(&answer).map_err(value_error)
    })
}

fn searched<'a>(graph: &'a JointGraph, wishes: &Wishes) -> PyResult<Budgets<'a>> {
    let mut patience = Patience::new();
    let budgets = Budgets::new(graph, wishes, &mut |_| patience.look());
    budgets.map_err(|error| patience.interrupt.unwrap_or_else(|| value_error(error)))
}

/// A plan within a budget, or the minimum cut if there is none.
fn planned(
    graph: &JointGraph,
    wishes: &Wishes,
    budgets: &Budgets<'_>,
    budget: Option<u64>,
) -> PyResult<serde_json::Value> {
    let Some(budget) = budget else {
        return json_of(&partition(graph, wishes).map_err(value_error)?);
    };
    let planned = budgets.plan(budget).map_err(|error| match &error {
        CutError::Infeasible { smallest, .. } => {
            PyValueError::new_err((error.to_string(), *smallest))
        }
        _ => value_error(error),
    });
    json_of(&planned?)
}

fn json_of(value: &impl Serialize) -> PyResult<serde_json::Value> {
    serde_json::to_value(value).map_err(value_error)
}

/// A callback for progress that looks for Ctrl-C every now and then.
struct Patience {
    looked: Instant,
    interrupt: Option<PyErr>,
}

impl Patience {
    fn new() -> Patience {
        Patience {
            looked: Instant::now(),
            interrupt: None,
        }
    }

    fn look(&mut self) -> ControlFlow<()> {
        if self.looked.elapsed() < PATIENCE {
            return ControlFlow::Continue(());
        }
        self.looked = Instant::now();
        match Python::attach(|py| py.check_signals()) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.interrupt = Some(error);
                ControlFlow::Break(())
            }
        }
    }
}

/// Cost, nanoseconds recomputed and peak bytes of a plan of a joint graph, recomputed by code that shares nothing with
/// the planner. Raises `ValueError` where the plan is not valid, or not what it claims.
#[pyfunction]
pub(crate) fn verify_cut(graph_json: &str, plan_json: &str) -> PyResult<(u64, u64, u64)> {
    let graph: JointGraph = graph_json.parse().map_err(value_error)?;
    let claim: cut::Claim = serde_json::from_str(plan_json).map_err(value_error)?;
    let verified = cut::verify(&graph, &claim).map_err(value_error)?;
    Ok((verified.cost, verified.recompute_ns, verified.peak_bytes))
}

/// The values that each fusion group of a graph best reads of another, and those that it best computes again (section
/// 3.7), as JSON: a list of `remat_plan::cut::Handover`. `graph_json` is the text of GRAPH.json with groups. Raises
/// `ValueError` for bad input.
#[pyfunction]
pub(crate) fn between_groups(py: Python<'_>, graph_json: &str) -> PyResult<String> {
    py.detach(|| {
        let graph: JointGraph = graph_json.parse().map_err(value_error)?;
        let handovers = cut::between_groups(&graph).map_err(value_error)?;
        serde_json::to_string(&handovers).map_err(value_error)
    })
}

/// A plan of a recorded step, as the JSON that `remat plan step --json` prints, checked by the verifier. `events_json`
/// is a list of events, `budget` bytes; without one, the plan is the smallest that is found. `known` is a schedule to
/// begin from: pairs of an op that runs again and the event before which it does.
///
/// Raises `ValueError(message)` for bad input, and where no plan is found.
#[pyfunction]
#[pyo3(signature = (events_json, *, budget = None, known = Vec::new(), rounds = 0))]
pub(crate) fn plan_step(
    py: Python<'_>,
    events_json: &str,
    budget: Option<u64>,
    known: Vec<(u32, u32)>,
    rounds: u64,
) -> PyResult<String> {
    py.detach(|| {
        let events: Vec<Event> = serde_json::from_str(events_json).map_err(value_error)?;
        let step = Step::from_events(&events).map_err(value_error)?;
        let known: Vec<Rerun> = (known.into_iter())
            .map(|(op, event)| Rerun { op, event })
            .collect();
        let mut patience = Patience::new();
        let mut planner = Planner::new(&step);
        let plan = match budget {
            None => planner.smallest(0, &mut |_| patience.look()),
            Some(budget) => {
                let search = Search {
                    seed: 0,
                    iterations: Some(rounds),
                    known: Vec::from_iter((!known.is_empty()).then_some(known)),
                };
                planner.plan(Bytes(budget), &search, &mut |_| patience.look())
            }
        };
        if let Some(interrupt) = patience.interrupt {
            return Err(interrupt);
        }
        let plan = plan.map_err(value_error)?;
        verify_step(&events, &plan).map_err(value_error)?;
        serde_json::to_string(&plan).map_err(value_error)
    })
}
