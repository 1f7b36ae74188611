//! Recomputing between fusion groups (section 3.7 of the paper).

use crate::small_truths::graph;
use remat_plan::cut::{Description, Handover, JointGraph, Quantity, between_groups};

/// Nodes of the forward pass in groups: `names` of each.
fn grouped(mut graph: Description, groups: &[&str]) -> Description {
    for (number, names) in (1..).zip(groups) {
        for name in names.split_whitespace() {
            let node = graph.nodes.iter_mut().find(|node| node.name == name);
            node.unwrap().group = Some(number);
        }
    }
    graph
}

fn handovers(graph: Description) -> Vec<Handover> {
    between_groups(&JointGraph::new(graph).unwrap()).unwrap()
}

/// In the manner of figure 4: group 1 makes a from x, b from a, c from b; group 2 reads all three.
fn figure_4() -> Description {
    let net = graph(
        "x; y; a = relu x; b = relu a; c = relu b; d = add a b; e = add d c; out = add e y",
        ["x y", "", "out", ""],
    );
    grouped(net, &["a b c", "d e out"])
}

#[test]
fn group_1_of_figure_4_is_recomputed_in_group_2() {
    let handovers = handovers(figure_4());
    assert_eq!(handovers.len(), 1);
    let Handover {
        producer,
        consumer,
        read,
        recomputed,
        cost,
        plain_cost,
    } = &handovers[0];
    assert_eq!((*producer, *consumer), (1, 2));
    assert_eq!(
        (read.as_slice(), recomputed.as_slice()),
        (
            &["x".to_owned()][..],
            &["a", "b", "c"].map(String::from)[..]
        )
    );
    assert_eq!((*cost, *plain_cost), (4, 24));
}

#[test]
fn after_a_sum_only_what_follows_is_recomputed() {
    let mut net = figure_4();
    // a is large and only summed; group 2 reads the sum and what is made of it.
    net.nodes
        .iter_mut()
        .find(|node| node.name == "d")
        .unwrap()
        .inputs = vec!["b".into()];
    for (name, bytes) in [("x", 4000), ("a", 4000)] {
        net.nodes
            .iter_mut()
            .find(|node| node.name == name)
            .unwrap()
            .bytes = Quantity::Whole(bytes);
    }
    net.nodes
        .iter_mut()
        .find(|node| node.name == "b")
        .unwrap()
        .reduction = true;
    let handovers = handovers(net);
    assert_eq!(
        (
            handovers[0].read.as_slice(),
            handovers[0].recomputed.as_slice()
        ),
        (&["b".to_owned()][..], &["c".to_owned()][..])
    );
}

#[test]
fn what_a_third_group_reads_is_written_anyway() {
    let mut net = figure_4();
    net.nodes.extend(graph("z = neg c", ["", "", "", ""]).nodes);
    net.forward_outputs.push("z".into());
    let net = grouped(net, &["", "", "z"]);
    let handovers = handovers(net);
    let pairs: Vec<(u32, u32)> = handovers
        .iter()
        .map(|one| (one.producer, one.consumer))
        .collect();
    assert_eq!(pairs, [(1, 2), (1, 3)]);
    // Handing c over costs but its reading now, and x as much.
    assert_eq!((handovers[0].cost, handovers[0].plain_cost), (4, 20));
    assert_eq!((handovers[1].cost, handovers[1].plain_cost), (4, 4));
}

#[test]
fn groups_that_read_one_another_are_refused() {
    let net = grouped(figure_4(), &["a c", "b d"]);
    let told = between_groups(&JointGraph::new(net).unwrap())
        .unwrap_err()
        .to_string();
    assert!(told.contains("groups 1 and 2 read one another"), "{told}");
}
