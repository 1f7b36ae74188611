//! Tests of the search and of the bound on graphs small enough for all choices to be tried.

use crate::cut::evaluate::choice::Problem;
use crate::cut::search::bound::bound;
use crate::cut::search::frontier_search::{Found, search_all_below};
use crate::cut::{JointGraph, Wishes};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use random_graphs::joint_graphs;
use std::ops::ControlFlow;

#[path = "../../../tests/cut/random_graphs.rs"]
mod random_graphs;

/// The least time within a budget; more than any where nothing fits.
fn least(found: &Found, budget: u64) -> u64 {
    let choice = found.frontier.within(budget);
    choice.map_or(u64::MAX, |choice| choice.recompute_ns)
}

#[test]
fn what_is_found_is_nearly_always_the_best_and_never_below_the_bound() {
    let mut runner = TestRunner::deterministic();
    let go_on = &mut |_| ControlFlow::Continue(());
    let (mut budgets, mut missed, mut proven) = (0, 0, 0);
    for _ in 0..1500 {
        let description = joint_graphs(13, 8)
            .new_tree(&mut runner)
            .expect("one is drawn");
        let graph = JointGraph::new(description.current()).expect("it is sound");
        let problem = Problem::new(&graph, &Wishes::default()).expect("it has bans");
        let Ok(all) = search_all_below(20, &problem, go_on) else {
            continue;
        };
        let found = search_all_below(0, &problem, go_on).expect("there is a cut");
        let peaks: Vec<u64> = all.frontier.choices().map(|choice| choice.peak).collect();
        for peak in peaks {
            let (best, best_found) = (least(&all, peak), least(&found, peak));
            let bound = bound(&problem, peak).expect("there is a cut");
            assert!(best <= best_found && bound.is_some_and(|bound| bound <= best));
            budgets += 1;
            missed += usize::from(best < best_found);
            proven += usize::from(bound == Some(best));
        }
    }
    assert!(
        budgets > 1000 && 50 * missed <= budgets,
        "{missed} of {budgets} missed"
    );
    assert!(10 * proven >= 9 * budgets, "{proven} of {budgets} proven");
}
