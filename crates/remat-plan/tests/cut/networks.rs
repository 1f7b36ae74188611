//! Minimum cuts of networks.

use proptest::prelude::*;
use remat_plan::cut::Capacity::{Finite, Infinite};
use remat_plan::cut::{Capacity, Network, NoMinCut, min_cut, min_cut_nearest_source};

/// Vertices besides, and edges.
type Drawing = (u32, Vec<(u32, u32, Capacity)>);

fn network((besides, edges): &Drawing) -> Network {
    let mut network = Network::new(*besides);
    for &(tail, head, capacity) in edges {
        network.edge(tail, head, capacity);
    }
    network
}

fn drawings(vertices: u32, edges: usize) -> impl Strategy<Value = Drawing> {
    let capacity = prop_oneof![5 => (0u64..6).prop_map(Finite), 1 => Just(Infinite)];
    (0..=vertices).prop_flat_map(move |besides| {
        let vertex = 0..besides + 2;
        let edge = (vertex.clone(), vertex, capacity.clone());
        (Just(besides), prop::collection::vec(edge, 0..=edges))
    })
}

/// Of all finite cuts, by definition: the least cost, and the sides of the sink (bit sets) of the cuts that have it.
fn all_cuts((besides, edges): &Drawing) -> Option<(u64, Vec<u32>)> {
    let mut best: Option<(u64, Vec<u32>)> = None;
    for side in (0..1u32 << (besides + 2)).filter(|side| side & 3 == 2) {
        let beyond = |vertex: u32| side >> vertex & 1 == 1;
        let cut = edges
            .iter()
            .filter(|&&(tail, head, _)| !beyond(tail) && beyond(head));
        let cost = cut.map(|&(_, _, capacity)| match capacity {
            Finite(capacity) => Some(capacity),
            Infinite => None,
        });
        let Some(cost) = cost.sum::<Option<u64>>() else {
            continue;
        };
        match &mut best {
            Some((least, _)) if *least < cost => {}
            Some((least, sides)) if *least == cost => sides.push(side),
            _ => best = Some((cost, vec![side])),
        }
    }
    best
}

fn bits(sides: &[bool]) -> u32 {
    (0..)
        .zip(sides)
        .map(|(vertex, &side)| u32::from(side) << vertex)
        .sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases * 8))]

    #[test]
    fn the_cut_is_the_cheapest_and_the_nearest(drawing in drawings(8, 24)) {
        let network = network(&drawing);
        match (all_cuts(&drawing), min_cut(&network), min_cut_nearest_source(&network)) {
            (Some((cost, sides)), Ok(near), Ok(far)) => {
                prop_assert_eq!((near.cost, far.cost), (cost, cost));
                prop_assert_eq!(bits(&near.sink_side), sides.iter().fold(u32::MAX, |all, side| all & side));
                prop_assert_eq!(bits(&far.sink_side), sides.iter().fold(0, |any, side| any | side));
            }
            (None, Err(NoMinCut::Endless(near)), Err(NoMinCut::Endless(far))) => {
                for path in [near, far] {
                    let mut at = Network::SOURCE;
                    for edge in path {
                        let (tail, head, capacity) = drawing.1[edge];
                        prop_assert_eq!((tail, capacity), (at, Infinite));
                        at = head;
                    }
                    prop_assert_eq!(at, Network::SINK);
                }
            }
            (wanted, found, _) => prop_assert!(false, "{wanted:?}, but {found:?}"),
        }
    }

    #[test]
    fn larger_networks_keep_their_certificates(drawing in drawings(60, 300)) {
        // Flow and cut are compared by the solver; here only that both directions agree.
        let network = network(&drawing);
        match (min_cut(&network), min_cut_nearest_source(&network)) {
            (Ok(near), Ok(far)) => {
                prop_assert_eq!(near.cost, far.cost);
                for (near, far) in near.sink_side.iter().zip(&far.sink_side) {
                    prop_assert!(far >= near);
                }
            }
            (Err(NoMinCut::Endless(_)), Err(NoMinCut::Endless(_))) => {}
            (near, far) => prop_assert!(false, "{near:?}, {far:?}"),
        }
    }
}

#[test]
fn capacities_that_do_not_add_up_are_refused() {
    let most = (1 << 62) - 1;
    let edges = |first| vec![(0, 2, Finite(first)), (2, 1, Finite(1))];
    assert_eq!(
        min_cut(&network(&(1, edges(most - 1)))).map(|cut| cut.cost),
        Ok(1)
    );
    assert!(matches!(
        min_cut(&network(&(1, edges(most)))),
        Err(NoMinCut::TooLarge(_))
    ));
    assert!(matches!(
        min_cut(&network(&(1, edges(u64::MAX)))),
        Err(NoMinCut::TooLarge(_))
    ));
}
