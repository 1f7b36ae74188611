//! Plans within a budget of bytes.

use crate::cut::error::CutError;
use crate::cut::evaluate::choice::{Choice, Problem};
use crate::cut::graph::ban_rules::Wishes;
use crate::cut::graph::joint_graph::JointGraph;
use crate::cut::search::bound::bound;
use crate::cut::search::frontier_search::{Found, Progress, search};
use crate::cut::search::partition::Cut;
use serde::Serialize;
use std::time::Instant;

/// A plan within a budget.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Planned {
    /// The saved values, with their cost, time and memory.
    #[serde(flatten)]
    pub cut: Cut,
    /// The budget, in bytes.
    pub budget_bytes: u64,
    /// A lower bound on the nanoseconds that a choice within the budget recomputes.
    pub bound_ns: u64,
}

/// A point of the frontier: the memory and the time of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Tradeoff {
    /// The most bytes that the step takes at once.
    pub peak_bytes: u64,
    /// Nanoseconds of ops that run a second time beside the kernels of the backward pass.
    pub recompute_ns: u64,
    /// Sum of the capacities that are cut.
    pub cost: u64,
}

/// A plan that no other plan beats in both memory and time, of those that were found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FrontierPlan {
    /// The most bytes that the step takes at once.
    pub peak_bytes: u64,
    /// Nanoseconds of ops that run a second time beside the kernels of the backward pass.
    pub recompute_ns: u64,
    /// Names of the values that the backward pass is handed.
    pub saved: Vec<String>,
    /// Names of the nodes that the backward pass computes although the forward pass could.
    pub recomputed: Vec<String>,
    /// Names of the recomputed nodes that the rules ban from it.
    pub lifted: Vec<String>,
    /// Names of the nodes that the backward pass runs, in order.
    pub backward: Vec<String>,
    /// Sum of the capacities that are cut.
    pub cost: u64,
    /// Bytes of all saved values.
    pub saved_bytes: u64,
}

/// Plans of a joint graph for all budgets at once, from the smallest to that of the minimum cut.
pub struct Budgets<'a> {
    problem: Problem<'a>,
    found: Found,
    start: Instant,
}

impl<'a> Budgets<'a> {
    /// Searches, some seconds at most where the graph is small, and longer in proportion where it is large.
    pub fn new(
        graph: &'a JointGraph,
        wishes: &Wishes,
        progress: &mut Progress<'_>,
    ) -> Result<Budgets<'a>, CutError> {
        let start = Instant::now();
        let problem = Problem::new(graph, wishes)?;
        let found = search(&problem, progress)?;
        Ok(Budgets {
            problem,
            found,
            start,
        })
    }

    /// The best choices found, peaks rising and times falling; none has a higher peak than the minimum cut.
    fn choices(&self) -> impl Iterator<Item = &Choice> {
        let most = self.found.cheapest.peak;
        let choices = self.found.frontier.choices();
        choices.take_while(move |choice| choice.peak <= most)
    }

    /// Memory and time of the best plans found, peaks rising and times falling; none has a higher peak than the
    /// minimum cut.
    pub fn tradeoffs(&self) -> Vec<Tradeoff> {
        let tradeoff = |choice: &Choice| Tradeoff {
            peak_bytes: choice.peak,
            recompute_ns: choice.recompute_ns,
            cost: choice.cost,
        };
        self.choices().map(tradeoff).collect()
    }

    /// The best plans found, one for each of the [`Budgets::tradeoffs`], in the same order.
    pub fn frontier(&self) -> Vec<FrontierPlan> {
        let plan = |choice| {
            let cut = Cut::of(&self.problem, choice, self.start);
            FrontierPlan {
                peak_bytes: cut.peak_bytes,
                recompute_ns: cut.recompute_ns,
                saved: cut.saved,
                recomputed: cut.recomputed,
                lifted: cut.lifted,
                backward: cut.backward,
                cost: cut.cost,
                saved_bytes: cut.saved_bytes,
            }
        };
        self.choices().map(plan).collect()
    }

    fn bound(&self, budget: u64, choice: &Choice) -> Result<u64, CutError> {
        let bound = bound(&self.problem, budget)?;
        Ok(bound.unwrap_or(0).min(choice.recompute_ns))
    }

    /// The fastest plan found within a budget: the minimum cut where that fits. A larger budget never gives a slower
    /// plan.
    pub fn plan(&self, budget: u64) -> Result<Planned, CutError> {
        let most = self.found.cheapest.peak;
        let Some(choice) = self.found.frontier.within(budget.min(most)) else {
            return Err(CutError::Infeasible {
                budget,
                smallest: self.tradeoffs()[0].peak_bytes,
                certain: self.found.exhaustive || bound(&self.problem, budget)?.is_none(),
            });
        };
        Ok(Planned {
            bound_ns: if self.found.exhaustive && budget <= most {
                choice.recompute_ns
            } else {
                self.bound(budget, choice)?
            },
            budget_bytes: budget,
            cut: Cut::of(&self.problem, choice, self.start),
        })
    }
}
