//! Schedules that are known before a search: those of the engine's policies, and plans of other budgets.

use super::recorded::{Asked, Recorded};
use crate::failure::Failure;
use remat_core::Policy;
use remat_plan::step::{Action, StepPlan};
use remat_sim::{Budget, Reruns};
use remat_trace::{Event, Rerun};

/// A policy's schedule.
pub(super) struct Online {
    pub(super) policy: Policy,
    pub(super) reruns: Reruns,
}

impl Online {
    /// The schedule of a policy within a budget, if it has one.
    pub(super) fn of(
        recorded: &Recorded,
        name: &str,
        budget: Asked,
    ) -> Result<Option<Online>, Failure> {
        let policy: Policy = name.parse().map_err(|error| recorded.fault(error))?;
        let budget = Budget::Bytes(budget.bytes);
        let reruns = recorded.program.reruns(&recorded.base, policy, budget);
        let reruns = reruns.map_err(|unsound| recorded.fault(unsound))?;
        Ok(reruns.map(|reruns| Online { policy, reruns }))
    }
}

/// For each op, constants included, the event after it; and the first event before all. Remarks do not count.
pub(in crate::commands) fn places(events: &[Event]) -> Vec<u32> {
    let mut places = vec![0];
    let counted = events
        .iter()
        .filter(|event| !matches!(event, Event::Mark { .. }));
    for (event, index) in counted.zip(1..) {
        if matches!(event, Event::Constant { .. } | Event::Op { .. }) {
            places.push(index);
        }
    }
    places
}

/// The runs again of a plan, each right after the op that runs for the first time before it.
pub(in crate::commands) fn runs_of(plan: &StepPlan, places: &[u32]) -> Vec<Rerun> {
    let mut runs = Vec::new();
    let mut ran = 0;
    for action in &plan.steps {
        let (Action::Run(op) | Action::RunInPlace(op)) = *action else {
            continue;
        };
        if op == ran {
            ran += 1;
        } else if let Some(&event) = places.get(ran as usize) {
            runs.push(Rerun { op, event });
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_again_of_a_plan_are_told_by_the_event_that_follows_the_first_run_before_them() {
        let constant = |tensor| Event::Constant {
            tensor,
            bytes: 1,
            device: 0,
        };
        let mark = Event::Mark { name: "x".into() };
        let events = [
            constant(0),
            mark,
            Event::Retain { tensor: 0 },
            constant(1),
            Event::Release { tensor: 0 },
        ];
        let places = places(&events);
        assert_eq!(places, [0, 1, 3]);
        let text = r#"{"remat-step-plan": 1, "budget_bytes": 0, "peak_bytes": 0, "cost_ns": 0, "recompute_ns": 0,
            "bound_ns": 0, "seed": 0, "iterations": 0, "ops": 2, "storages": 2,
            "steps": [["run", 0], ["run", 0], ["free", 0], ["run", 1], ["run", 0, "in place"]]}"#;
        let plan: StepPlan = serde_json::from_str(text).unwrap();
        let runs = runs_of(&plan, &places);
        assert_eq!(runs, [Rerun { op: 0, event: 1 }, Rerun { op: 0, event: 3 }]);
    }
}
