//! Plans within budgets, against all choices there are.

use crate::random_graphs::joint_graphs;
use proptest::prelude::*;
use remat_plan::cut::{
    Budgets, Claim, CutError, Description, JointGraph, Verified, Wishes, partition, verify,
};
use serde::Serialize;
use std::ops::ControlFlow;

/// Every valid choice, bans lifted, by definition of the verifier.
fn every_choice(graph: &JointGraph, description: &Description) -> Vec<Verified> {
    let names: Vec<String> = description
        .nodes
        .iter()
        .map(|node| node.name.clone())
        .collect();
    let tangent = names
        .iter()
        .position(|name| *name == description.tangents[0])
        .unwrap();
    let choices = (0..1u32 << tangent).map(|choice| {
        let chosen = (0..tangent).filter(|bit| choice >> bit & 1 == 1);
        let claim = Claim {
            saved: chosen.map(|bit| names[bit].clone()).collect(),
            lifted: names.clone(),
            ..Claim::default()
        };
        verify(graph, &claim)
    });
    choices.filter_map(Result::ok).collect()
}

/// The claims of a plan about itself.
fn claim(plan: &impl Serialize) -> Claim {
    serde_json::from_str(&serde_json::to_string(plan).unwrap()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn plans_fit_and_none_is_faster_than_any_choice_could_be(description in joint_graphs(8, 5)) {
        let graph = JointGraph::new(description.clone()).unwrap();
        let all = every_choice(&graph, &description);
        let Ok(cheapest) = partition(&graph, &Wishes::default()) else {
            return Ok(());
        };
        let go_on = &mut |_| ControlFlow::Continue(());
        let budgets = Budgets::new(&graph, &Wishes::default(), go_on).unwrap();
        let tradeoffs = budgets.tradeoffs();
        for pair in tradeoffs.windows(2) {
            prop_assert!(pair[0].peak_bytes < pair[1].peak_bytes);
            prop_assert!(pair[0].recompute_ns >= pair[1].recompute_ns);
        }
        let frontier = budgets.frontier();
        prop_assert_eq!(frontier.len(), tradeoffs.len());
        for (plan, tradeoff) in frontier.iter().zip(&tradeoffs) {
            let verified = verify(&graph, &claim(plan)).unwrap();
            prop_assert_eq!(verified.peak_bytes, tradeoff.peak_bytes);
            prop_assert_eq!(verified.recompute_ns, tradeoff.recompute_ns);
            prop_assert_eq!(&verified.recomputed, &plan.recomputed);
            prop_assert_eq!(&budgets.plan(plan.peak_bytes).unwrap().cut.saved, &plan.saved);
        }
        let smallest = all.iter().map(|worth| worth.peak_bytes).min().unwrap();
        prop_assert_eq!(tradeoffs[0].peak_bytes, smallest);
        match budgets.plan(smallest - 1) {
            Err(CutError::Infeasible { smallest: said, .. }) => prop_assert_eq!(said, smallest),
            other => prop_assert!(false, "{other:?}"),
        }
        for budget in smallest..=cheapest.peak_bytes {
            let planned = budgets.plan(budget).unwrap();
            let verified = verify(&graph, &claim(&planned)).unwrap();
            prop_assert!(verified.peak_bytes <= budget);
            let fits = all.iter().filter(|worth| worth.peak_bytes <= budget);
            let least = fits.map(|worth| worth.recompute_ns).min().unwrap();
            prop_assert!(planned.bound_ns <= least);
            prop_assert_eq!(planned.cut.recompute_ns, least);
        }
        let plenty = budgets.plan(u64::MAX).unwrap();
        prop_assert!(plenty.cut.recompute_ns <= cheapest.recompute_ns);
        prop_assert!(plenty.cut.peak_bytes <= cheapest.peak_bytes);
    }

    #[test]
    fn the_minimum_cut_is_worth_what_it_says(description in joint_graphs(14, 10)) {
        let graph = JointGraph::new(description).unwrap();
        if let Ok(cut) = partition(&graph, &Wishes::default()) {
            let verified = verify(&graph, &claim(&cut));
            prop_assert!(verified.is_ok(), "{}", verified.unwrap_err());
        }
    }
}
