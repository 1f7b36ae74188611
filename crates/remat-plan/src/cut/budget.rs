//! Plans within a budget of bytes.

use super::ban::Wishes;
use super::bound::bound;
use super::error::CutError;
use super::model::JointGraph;
use super::partition::Cut;
use super::search::{search, Found, Progress};
use super::worth::{Choice, Question};
use serde::Serialize;
use std::time::Instant;

/// What is saved and recomputed within a budget.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Planned {
    /// What is saved and what it is worth.
    #[serde(flatten)]
    pub cut: Cut,
    /// Bytes that the step was to fit in.
    pub budget_bytes: u64,
    /// Nanoseconds that any choice within the budget recomputes at least.
    pub bound_ns: u64,
}

/// A point of the frontier: a budget, and the time it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Tradeoff {
    /// The most bytes that the step takes at once.
    pub peak_bytes: u64,
    /// Nanoseconds of ops that run a second time beside the kernels of the backward pass.
    pub recompute_ns: u64,
    /// Sum of the capacities cut.
    pub cost: u64,
}

/// All budgets of a joint graph at once: what was found between the smallest and that of the minimum cut.
pub struct Budgets<'a> {
    question: Question<'a>,
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
        let question = Question::new(graph, wishes)?;
        let found = search(&question, progress)?;
        Ok(Budgets {
            question,
            found,
            start,
        })
    }

    /// The best choices found, peaks rising and times falling; none has a higher peak than the minimum cut.
    pub fn tradeoffs(&self) -> Vec<Tradeoff> {
        let most = self.found.cheapest.peak;
        let choices = self.found.frontier.choices();
        choices
            .filter(|choice| choice.peak <= most)
            .map(|choice| Tradeoff {
                peak_bytes: choice.peak,
                recompute_ns: choice.recompute_ns,
                cost: choice.cost,
            })
            .collect()
    }

    fn bound(&self, budget: u64, choice: &Choice) -> Result<u64, CutError> {
        let bound = bound(&self.question, budget)?;
        Ok(bound.unwrap_or(0).min(choice.recompute_ns))
    }

    /// The fastest choice found within a budget: the minimum cut where that fits. A larger budget never gives a slower one.
    pub fn plan(&self, budget: u64) -> Result<Planned, CutError> {
        let most = self.found.cheapest.peak;
        let Some(choice) = self.found.frontier.within(budget.min(most)) else {
            return Err(CutError::Infeasible {
                budget,
                smallest: self.tradeoffs()[0].peak_bytes,
                certain: self.found.exhaustive || bound(&self.question, budget)?.is_none(),
            });
        };
        Ok(Planned {
            bound_ns: match self.found.exhaustive && budget <= most {
                true => choice.recompute_ns,
                false => self.bound(budget, choice)?,
            },
            budget_bytes: budget,
            cut: Cut::of(&self.question, choice, self.start),
        })
    }
}
