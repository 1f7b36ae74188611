//! Values that kernels never write: they take no memory, and hold the values that they are computed from.

use crate::small_truths::graph;
use remat_plan::cut::{Claim, Description, JointGraph, Node, Quantity, Wishes, partition, verify};

/// The peak of the minimum cut, on which planner and verifier agree.
fn peak(description: &Description) -> u64 {
    let graph = JointGraph::new(description.clone()).unwrap();
    let cut = partition(&graph, &Wishes::default()).unwrap();
    let claim = Claim {
        saved: cut.saved,
        ..Claim::default()
    };
    assert_eq!(verify(&graph, &claim).unwrap().peak_bytes, cut.peak_bytes);
    cut.peak_bytes
}

fn with(mut description: Description, names: &str, edit: impl Fn(&mut Node)) -> Description {
    for name in names.split_whitespace() {
        let node = description.nodes.iter_mut().find(|node| node.name == name);
        edit(node.unwrap());
    }
    description
}

/// Two chains of ops that fuse, in which only the last is handed on.
fn chains() -> Description {
    graph(
        "x; a = tanh x; b = tanh a; y = tanh b; g; h = mul g x; i = neg h; dx = neg i",
        ["x", "g", "y", "dx"],
    )
}

#[test]
fn a_chain_of_ops_that_fuse_takes_what_goes_in_and_what_comes_out() {
    // x, y, g, dx
    assert_eq!(peak(&chains()), 16);
}

#[test]
fn what_the_caller_knows_to_be_written_takes_its_bytes() {
    let written = with(chains(), "a b h i", |node| node.written = Some(true));
    // x, y, g, h, i
    assert_eq!(peak(&written), 20);
}

#[test]
fn what_is_handed_on_or_read_by_other_kernels_is_written() {
    let product = |node: &mut Node| node.fusible = false;
    // x, y, g, h, i
    assert_eq!(peak(&with(chains(), "i", product)), 20);
    // x, y, g, h, dx
    let mut output = chains();
    output.backward_outputs.push("h".into());
    assert_eq!(peak(&output), 20);
}

#[test]
fn a_reduction_is_written() {
    let sum = with(chains(), "h", |node| node.reduction = true);
    // x, y, g, h, dx
    assert_eq!(peak(&sum), 20);
    let known = with(sum, "h", |node| node.written = Some(false));
    assert_eq!(peak(&known), 16);
}

#[test]
fn a_value_inside_kernels_holds_what_it_is_computed_from() {
    let net = graph(
        "x; y = neg x; g; m = mm g; k = neg m; p = neg k; q = mm p; dx = add k q",
        ["x", "g", "y", "p q dx"],
    );
    let net = with(net, "m q", |node| node.fusible = false);
    let net = with(net, "m", |node| node.bytes = Quantity::Whole(100));
    // x, y, g, m, p, q, dx: computing dx takes m, of which k is computed once more.
    assert_eq!(peak(&net), 124);
    // x, y, g, m, k
    let known = with(net, "k", |node| node.written = Some(true));
    assert_eq!(peak(&known), 116);
}

#[test]
fn a_view_that_is_read_by_another_kernel_has_its_base_written() {
    let net = graph(
        "x; y = neg x; g; a = neg g; v = view a; w = view v; dx = mm w",
        ["x", "g", "y", "dx"],
    );
    let view = |base: &str| {
        let base = Some(base.to_owned());
        move |node: &mut Node| node.view_of.clone_from(&base)
    };
    let net = with(with(net, "v", view("a")), "w", view("v"));
    // x, y, g, dx
    assert_eq!(peak(&net), 16);
    // x, y, g, a, dx
    assert_eq!(peak(&with(net, "dx", |node| node.fusible = false)), 20);
}

#[test]
fn an_op_takes_its_workspace_while_it_runs() {
    let workspace = |bytes| move |node: &mut Node| node.workspace = Quantity::Whole(bytes);
    // x, y beside that of y; x, y, g, dx beside that of dx
    let net = with(chains(), "y", workspace(100));
    assert_eq!(peak(&net), 108);
    assert_eq!(peak(&with(net, "dx", workspace(93))), 109);
}

/// A value of the backward pass that two kernels read, the second of which needs what a product makes of the first.
fn apart(sources: &str) -> Description {
    let text = format!("x; y = neg x; g; {sources}; w = neg v; m = mm w; dx = mul v m");
    let mut net = graph(&text, ["x", "g", "y", "dx"]);
    for node in &mut net.nodes {
        node.fusible = node.op != "mm";
    }
    net
}

#[test]
fn what_is_heavy_is_computed_once_for_kernels_that_cannot_be_one() {
    let light = apart("v = tanh g");
    // x, y, g, w, m
    assert_eq!(peak(&light), 20);
    // x, y, g, v, w, m
    let heavy = with(light, "v", |node| node.heavy = true);
    assert_eq!(peak(&heavy), 24);
    // A value computed from a heavy one is no lighter, and kernels that can be one do not mind.
    let chain = with(apart("u = tanh g; v = neg u"), "u", |node| {
        node.heavy = true
    });
    assert_eq!(peak(&chain), 24);
    let near = with(chains(), "a b h i", |node| node.heavy = true);
    assert_eq!(peak(&near), 16);
}

#[test]
fn a_value_of_more_than_four_others_is_not_computed_twice() {
    let four = "p = mm g; q = mm g; r = mm g; s = mm g; a = add p q; b = add a r";
    // x, y, g, p, q, r, s, w, m
    assert_eq!(peak(&apart(&format!("{four}; v = add b s"))), 36);
    // x, y, g, p, q, r, s, t, v
    let five = format!("{four}; c = add b s; t = mm g; v = add c t");
    assert_eq!(peak(&apart(&five)), 36);
}

#[test]
fn the_caller_says_how_many_values_are_read_in_place_of_one() {
    let limited = |shared_reads, net: &Description| {
        let shared_reads = Some(shared_reads);
        let net = net.clone();
        peak(&Description {
            shared_reads,
            ..net
        })
    };
    let two = apart("p = mm g; q = mm g; v = add p q");
    // x, y, g, p, q, w, m; and with v written x, y, g, v, w, m
    assert_eq!((limited(2, &two), limited(1, &two)), (28, 24));
    let five = "p = mm g; q = mm g; r = mm g; s = mm g; t = mm g; a = add p q; b = add a r; c = add b s; v = add c t";
    // x, y, g, p, q, r, s, t, v; and with v inside kernels x, y, g, p, q, r, s, t, w, m
    let five = apart(five);
    assert_eq!((limited(4, &five), limited(5, &five)), (36, 40));
    for net in [
        two,
        apart("p = mm g; q = mm g; r = mm g; a = add p q; v = add a r"),
    ] {
        assert_eq!(limited(4, &net), peak(&net));
    }
}
