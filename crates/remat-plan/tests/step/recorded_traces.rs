//! Plans of recorded training steps.

use remat_core::Bytes;
use remat_plan::step::{Planner, Search, Step, StepError, verify};
use remat_trace::{Event, open};
use std::ops::ControlFlow;

/// For each trace and percentage of its peak, how much more time the plan takes than the bound, in parts of 10,000.
/// `None` where the budget is refused.
const GAPS: [(&str, u64, Option<u64>); 10] = [
    ("gpt", 70, Some(54)),
    ("gpt", 50, Some(247)),
    ("lstm", 70, Some(487)),
    ("lstm", 50, None),
    ("unet", 70, Some(25)),
    ("unet", 50, Some(209)),
    ("resnet", 70, Some(14)),
    ("resnet", 50, Some(318)),
    ("gan", 70, Some(49)),
    ("gan", 50, Some(210)),
];

fn recorded(name: &str) -> Vec<Event> {
    read(&format!("../../traces/{name}.trace.zst"))
}

fn read(path: &str) -> Vec<Event> {
    let reader = open(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    reader.map(|event| event.expect("a sound trace")).collect()
}

/// A search of two rounds comes as near to the bound as [`GAPS`] says, and a quarter of that at most is added.
#[test]
fn plans_of_recorded_traces_are_valid_and_near_the_bound() {
    for (name, percent, gap) in GAPS {
        let events = recorded(name);
        let step = Step::from_events(&events).expect("a step");
        let budget = step.peak_bytes() / 100 * percent;
        let search = Search {
            iterations: Some(2),
            ..Search::default()
        };
        let watch = &mut |_: &_| ControlFlow::Continue(());
        let plan = match (Planner::new(&step).plan(Bytes(budget), &search, watch), gap) {
            (Ok(plan), Some(_)) => plan,
            (Err(StepError::Budget { .. }), None) => continue,
            (other, _) => panic!(
                "{name} at {percent}%: {:?}",
                other.map(|plan| plan.recompute_ns)
            ),
        };
        let verified = verify(&events, &plan).unwrap_or_else(|fault| panic!("{name}: {fault}"));
        assert!(verified.peak_bytes <= budget);
        assert_eq!(verified.recompute_ns, plan.recompute_ns);
        assert_eq!(verified.cost_ns, step.cost_ns());
        let more = (plan.cost_ns + plan.recompute_ns - plan.bound_ns) as f64;
        let parts = more / plan.bound_ns as f64 * 10_000.0;
        let most = gap.expect("a plan") as f64 * 1.25;
        assert!(
            parts <= most,
            "{name} at {percent}%: {parts:.1} of 10,000 above the bound"
        );
    }
}

/// A training step of a small Mamba, as the engine recorded it within 56% of its span. Policies thrash at these
/// budgets, so the search has nothing to start with. A plan was found for less than any of them, so none is refused.
#[test]
fn no_budget_is_refused_above_one_that_has_a_plan() {
    let events = read("tests/step/data/mamba_step.trace.zst");
    let step = Step::from_events(&events).expect("a step");
    let watch = &mut |_: &_| ControlFlow::Continue(());
    for budget in [8_306_900, 8_575_018, 8_977_194] {
        let search = Search {
            iterations: Some(0),
            ..Search::default()
        };
        let plan = Planner::new(&step).plan(Bytes(budget), &search, watch);
        let plan = plan.unwrap_or_else(|error| panic!("{budget}: {error}"));
        let verified = verify(&events, &plan).unwrap_or_else(|fault| panic!("{budget}: {fault}"));
        assert!(verified.peak_bytes <= budget);
        assert!(
            verified.recompute_ns <= verified.cost_ns,
            "{budget}: {} of {}",
            verified.recompute_ns,
            verified.cost_ns
        );
    }
}
