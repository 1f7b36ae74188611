//! Partitions of random joint graphs against all choices there are.

use crate::by_definition::Meaning;
use crate::random_graphs::joint_graphs;
use proptest::prelude::*;
use remat_plan::cut::{Cut, CutError, Description, JointGraph, Nearest, Wishes, partition};
use std::collections::BTreeSet;

fn cut(graph: &Description, nearest: Nearest) -> Result<Cut, CutError> {
    let wishes = Wishes {
        nearest,
        ..Wishes::default()
    };
    partition(&JointGraph::new(graph.clone()).unwrap(), &wishes)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases * 6))]

    #[test]
    fn no_choice_costs_less_and_the_nearest_of_the_best_is_taken(graph in joint_graphs(8, 5)) {
        let meaning = Meaning::of(&graph);
        for nearest in [Nearest::Backward, Nearest::Forward] {
            match (meaning.best(), cut(&graph, nearest)) {
                (Some((cost, recomputed)), Ok(cut)) => {
                    let saved: BTreeSet<&str> = cut.saved.iter().map(String::as_str).collect();
                    let worth = meaning.worth(&saved);
                    let said: BTreeSet<&str> = cut.recomputed.iter().map(String::as_str).collect();
                    prop_assert_eq!(worth, Some((cut.cost, said.clone())));
                    prop_assert_eq!(cut.cost, cost);
                    let sizes = recomputed.iter().map(BTreeSet::len);
                    match nearest {
                        Nearest::Backward => prop_assert_eq!(Some(said.len()), sizes.min()),
                        Nearest::Forward => prop_assert_eq!(Some(said.len()), sizes.max()),
                    }
                    let banned: BTreeSet<&str> = cut.banned.iter().map(|(name, _)| name.as_str()).collect();
                    prop_assert_eq!(&banned, &meaning.banned);
                }
                (None, Err(CutError::NoCut { .. })) => {}
                (wanted, found) => prop_assert!(false, "{wanted:?}, but {found:?}"),
            }
        }
    }
}

#[test]
fn the_order_of_the_nodes_does_not_matter() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let strategy = (joint_graphs(12, 8), any::<u64>());
    runner
        .run(&strategy, |(graph, seed)| {
            let mut shuffled = graph.clone();
            let count = shuffled.nodes.len();
            for k in 1..count {
                shuffled
                    .nodes
                    .swap(k, seed.rotate_left(k as u32 * 7) as usize % (k + 1));
            }
            match (
                cut(&graph, Nearest::Backward),
                cut(&shuffled, Nearest::Backward),
            ) {
                (Ok(a), Ok(b)) => {
                    let set = |names: &[String]| names.iter().cloned().collect::<BTreeSet<_>>();
                    prop_assert_eq!(a.cost, b.cost);
                    prop_assert_eq!(set(&a.recomputed), set(&b.recomputed));
                }
                (Err(CutError::NoCut { .. }), Err(CutError::NoCut { .. })) => {}
                (a, b) => prop_assert!(false, "{a:?}, {b:?}"),
            }
            Ok(())
        })
        .unwrap();
}
