//! Plans of several budgets: each serves every larger budget, and the bound of each holds for every smaller one.

use remat_core::Bytes;
use remat_plan::step::StepPlan;

/// Of plans of one step the cheapest within a budget, with the best bound that is known for it.
pub(in crate::commands) fn cheapest(plans: &[&StepPlan], budget: Bytes) -> Option<StepPlan> {
    let fits = plans.iter().filter(|plan| plan.peak_bytes <= budget.0);
    let own = |plan: &StepPlan| plan.budget_bytes == budget.0;
    let best = fits.min_by_key(|plan| (plan.recompute_ns, !own(plan)))?;
    let wider = plans.iter().filter(|plan| plan.budget_bytes >= budget.0);
    let bound = wider.map(|plan| plan.bound_ns).max();
    Some(StepPlan {
        budget_bytes: budget.0,
        bound_ns: bound.unwrap_or(best.cost_ns),
        ..(*best).clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(budget_bytes: u64, peak_bytes: u64, recompute_ns: u64, bound_ns: u64) -> StepPlan {
        StepPlan {
            version: 1,
            budget_bytes,
            peak_bytes,
            cost_ns: 100,
            recompute_ns,
            bound_ns,
            seed: 0,
            iterations: budget_bytes,
            ops: 0,
            storages: 0,
            steps: Vec::new(),
            addresses: None,
        }
    }

    #[test]
    fn a_larger_budget_takes_a_cheaper_plan_of_a_smaller_one_and_keeps_its_own_bound() {
        let (large, small) = (plan(90, 88, 9, 101), plan(80, 79, 7, 103));
        let found = [&large, &small];
        let taken = cheapest(&found, Bytes(90)).unwrap();
        assert_eq!((taken.recompute_ns, taken.iterations), (7, 80));
        assert_eq!((taken.budget_bytes, taken.bound_ns), (90, 101));
        assert_eq!(cheapest(&found, Bytes(80)), Some(small.clone()));
        assert_eq!(cheapest(&found, Bytes(70)), None);
    }

    #[test]
    fn a_smaller_budget_has_the_bound_of_a_larger_one_and_its_plan_if_that_fits() {
        let large = plan(90, 70, 5, 104);
        let small = plan(80, 80, 5, 102);
        let taken = cheapest(&[&large, &small], Bytes(80)).unwrap();
        assert_eq!((taken.iterations, taken.bound_ns), (80, 104));
        let taken = cheapest(&[&large], Bytes(75)).unwrap();
        assert_eq!((taken.iterations, taken.bound_ns), (90, 104));
    }
}
