//! The examples of the paper, as joint graphs.

use remat_plan::cut::{
    Ban, Claim, Cut, Description, JointGraph, Node, Quantity, Wishes, partition, verify,
};

/// Nodes of four bytes that fuse, written `name = op read read`; a name alone is given.
pub(crate) fn graph(lines: &str, lists: [&str; 4]) -> Description {
    let node = |line: &str| {
        let (name, made) = line.split_once('=').unwrap_or((line, ""));
        let mut words = made.split_whitespace();
        let op = words.next().unwrap_or_default().to_owned();
        let inputs: Vec<&str> = words.collect();
        Node {
            op,
            fusible: true,
            ..Node::new(name.trim(), 4, &inputs)
        }
    };
    let lines = lines
        .split([';', '\n'])
        .map(str::trim)
        .filter(|line| !line.is_empty());
    let names = |list: &str| list.split_whitespace().map(Into::into).collect();
    let [inputs, tangents, forward_outputs, backward_outputs] = lists.map(names);
    Description {
        nodes: lines.map(node).collect(),
        inputs,
        tangents,
        forward_outputs,
        backward_outputs,
        ..Description::default()
    }
}

fn planned(description: Description) -> Cut {
    partition(&JointGraph::new(description).unwrap(), &Wishes::default()).unwrap()
}

fn change<'a>(graph: &'a mut Description, name: &str) -> &'a mut Node {
    graph
        .nodes
        .iter_mut()
        .find(|node| node.name == name)
        .unwrap()
}

#[test]
fn tanh_of_tanh_saves_x() {
    let cut = planned(graph(
        "x; a = tanh x; b = tanh a; g; b2 = mul b b; db = one_minus b2; h = mul g db; a2 = mul a a; \
         da = one_minus a2; dx = mul h da",
        ["x", "g", "b", "dx"],
    ));
    assert_eq!(cut.saved, ["x"]);
    assert_eq!((cut.cost, cut.saved_bytes), (4, 4));
    assert_eq!(cut.recomputed, ["a", "b", "b2", "db", "a2", "da"]);
}

#[test]
fn cos_of_cos_of_a_sum_saves_the_sum() {
    let cut = planned(graph(
        "a; b; c; d; s1 = add a b; s2 = add s1 c; s = add s2 d; u = cos s; v = cos u; g
         su = sin u; h = mul g su; ss = sin s; dx = mul h ss",
        ["a b c d", "g", "v", "dx"],
    ));
    assert_eq!(cut.saved, ["s"]);
    assert_eq!((cut.cost, cut.saved_bytes), (8, 4));
}

#[test]
fn dropout_saves_the_mask() {
    let mut dropout = graph(
        "x; r = rand_like x; mask = lt r; y = mul x mask; g; dx = mul g mask",
        ["x", "g", "y", "dx"],
    );
    change(&mut dropout, "r").random = true;
    change(&mut dropout, "mask").bytes = Quantity::Whole(1);
    let cut = planned(dropout);
    assert_eq!(cut.saved, ["mask"]);
    assert_eq!(cut.banned, [("r".to_owned(), Ban::Random)]);
    assert_eq!((cut.cost, cut.saved_bytes), (2, 1));
}

#[test]
fn gelu_in_primitives_is_recomputed() {
    let cut = planned(graph(
        "x; x2 = mul x x; x3 = mul x2 x; k = scale x3; t = add x k; u = scale t; e = tanh u; o = add_one e; \
         p = mul x o; y = half p; g
         dp = half g; do = mul dp x; e2 = mul e e; de = one_minus e2; du = mul do de; dt = scale du
         dk = scale dt; d3 = triple x2; dx3 = mul dk d3; dx1 = mul dp o; s = add dx1 dt; dx = add s dx3",
        ["x", "g", "y", "dx"],
    ));
    assert_eq!(cut.saved, ["x"]);
    assert!(
        ["x2", "x3", "k", "t", "u", "e", "o"]
            .iter()
            .all(|&name| cut.recomputed.iter().any(|r| r == name))
    );
}

#[test]
fn a_product_is_saved_and_what_follows_is_recomputed() {
    let mut net = graph(
        "x; w; m = mm x w; r = relu m; y = scale r; g; h = scale g; pos = gt r; dm = mul h pos; dw = mm x dm; \
         dx = mm dm w",
        ["x w", "g", "y", "dw dx"],
    );
    for name in ["m", "dw", "dx"] {
        let product = change(&mut net, name);
        (product.compute_bound, product.fusible) = (true, false);
    }
    let cut = planned(net.clone());
    // r is made from m, pos from r; m is written anyway, as no product fuses.
    assert_eq!(cut.saved, ["x", "w", "m"]);
    assert_eq!(cut.recomputed, ["r", "pos"]);
    let allowed = Wishes {
        allow: vec!["m".into()],
        ..Wishes::default()
    };
    let cut = partition(&JointGraph::new(net).unwrap(), &allowed).unwrap();
    assert_eq!(cut.saved, ["x", "w"]);
    assert_eq!(cut.recomputed, ["m", "r", "pos"]);
}

#[test]
fn a_sum_to_less_than_a_quarter_is_not_recomputed() {
    for (bytes, saved) in [(4, ["x"]), (3, ["s"])] {
        let mut net = graph(
            "x; s = sum x; y = exp s; g; h = mul g y; dx = mul h s",
            ["x", "g", "y", "dx"],
        );
        change(&mut net, "x").bytes = Quantity::Whole(16);
        change(&mut net, "s").reduction = true;
        change(&mut net, "s").bytes = Quantity::Whole(bytes);
        // Saving the sum costs twice its bytes, and x 16; what decides is the ban.
        change(&mut net, "x").bytes = Quantity::Whole(if bytes == 4 { 7 } else { 16 });
        let cut = planned(net);
        assert_eq!(cut.saved, saved);
    }
}

#[test]
fn results_of_an_op_of_several_are_saved_in_its_place() {
    let mut net = graph(
        "x; both = split x; l = getitem both; r = getitem both; y = add l r; g; dx = mul g l",
        ["x", "g", "y", "dx"],
    );
    let op = change(&mut net, "both");
    (op.savable, op.random) = (false, true);
    let cut = planned(net);
    assert_eq!(cut.saved, ["l"]);
}

/// The peak that the minimum cut claims, once the verifier found the same.
fn verified_peak(net: Description) -> u64 {
    let graph = JointGraph::new(net).unwrap();
    let cut = partition(&graph, &Wishes::default()).unwrap();
    let claim = Claim {
        saved: cut.saved,
        ..Claim::default()
    };
    assert_eq!(verify(&graph, &claim).unwrap().peak_bytes, cut.peak_bytes);
    cut.peak_bytes
}

#[test]
fn lists_among_the_results_of_an_op_are_there_from_when_the_op_runs() {
    // The op makes a value and two lists, and has 8 bytes of workspace. One result of the first list is taken, and of
    // the second none. With x and four results there are 28 bytes while it runs.
    let mut net = graph(
        "x; all = op x; l = getitem all; list = getitem all; m = getitem list; n = getitem list; \
         rest = getitem all; o = getitem rest; y = add l m; g; dx = mul g y",
        ["x", "g", "y", "dx"],
    );
    for tuple in ["all", "list", "rest"] {
        let op = change(&mut net, tuple);
        (op.savable, op.fusible) = (false, false);
        op.bytes = Quantity::Whole(0);
    }
    change(&mut net, "all").workspace = Quantity::Whole(8);
    assert_eq!(verified_peak(net), 28);
}

#[test]
fn results_of_a_list_that_is_given_are_there_from_when_they_are_taken() {
    // With x and a there are 24 bytes while the op of a runs, in 16 bytes of workspace.
    let mut net = graph(
        "x; list; a = op x; l = getitem list; y = add l a; g; dx = mul g x",
        ["x list", "g", "y", "dx"],
    );
    let list = change(&mut net, "list");
    (list.savable, list.bytes) = (false, Quantity::Whole(0));
    let op = change(&mut net, "a");
    (op.fusible, op.workspace) = (false, Quantity::Whole(16));
    assert_eq!(verified_peak(net), 24);
}
