//! Refusals of graphs that cannot be planned; they name the nodes.

use crate::small_truths::graph;
use remat_plan::cut::{JointGraph, Wishes, partition};
use serde_json::{Value, json};

fn good() -> Value {
    let net = graph(
        "x; a = tanh x; b = tanh a; g; h = mul g b; dx = mul h a",
        ["x", "g", "b", "dx"],
    );
    serde_json::to_value(net).unwrap()
}

/// Why the graph is refused, or its plan.
fn refusal(graph: &Value) -> String {
    match graph.to_string().parse::<JointGraph>() {
        Err(error) => error.to_string(),
        Ok(graph) => match partition(&graph, &Wishes::default()) {
            Err(error) => error.to_string(),
            Ok(cut) => panic!("planned: {cut:?}"),
        },
    }
}

#[test]
fn each_fault_is_told_with_the_nodes() {
    type Edit = fn(&mut Value);
    let cases: &[(Edit, &[&str])] = &[
        (
            |g| g["nodes"][1]["inputs"] = json!(["b"]),
            &["circle", "\"a\" -> \"b\" -> \"a\""],
        ),
        (
            |g| g["shared_reads"] = json!(1000),
            &["shared_reads is 1000", "at most 64"],
        ),
        (
            |g| {
                g["nodes"][1]["result_bytes"] = json!(-1);
                g["nodes"][1]["operand_bytes"] = json!(8);
            },
            &["\"a\": result_bytes is -1"],
        ),
        (
            |g| g["fusion_rules"] = json!({"far": true}),
            &["unknown field `far`"],
        ),
        (
            |g| g["nodes"][1]["inputs"] = json!(["a"]),
            &["circle: \"a\" -> \"a\""],
        ),
        (
            |g| g["nodes"][2]["inputs"] = json!(["z"]),
            &["\"b\" reads \"z\""],
        ),
        (|g| g["inputs"] = json!(["x", "q"]), &["inputs names \"q\""]),
        (|g| g["tangents"] = json!(["q"]), &["tangents names \"q\""]),
        (
            |g| g["forward_outputs"] = json!(["q"]),
            &["forward_outputs names \"q\""],
        ),
        (
            |g| g["backward_outputs"] = json!(["q"]),
            &["backward_outputs names \"q\""],
        ),
        (
            |g| g["nodes"][2]["name"] = json!("a"),
            &["two nodes are called \"a\""],
        ),
        (
            |g| g["nodes"][2]["inputs"] = json!(["a", "g"]),
            &["tangent \"g\" feeds forward output \"b\""],
        ),
        (
            |g| g["forward_outputs"] = json!(["dx"]),
            &["tangent \"g\" feeds forward output \"dx\""],
        ),
        (
            |g| g["tangents"] = json!(["g", "x"]),
            &["\"x\" is an input and a tangent"],
        ),
        (
            |g| g["inputs"] = json!(["x", "a"]),
            &["\"a\" is one of the inputs and reads \"x\""],
        ),
        (
            |g| g["inputs"] = json!([]),
            &["\"x\" reads nothing", "output \"dx\" hangs on it"],
        ),
        (|g| g["tangents"] = json!([]), &["\"g\" reads nothing"]),
        (|g| g["nodes"][3]["op"] = json!("placeholder"), &[]),
        (
            |g| g["nodes"][1]["bytes"] = json!(-1),
            &["\"a\": bytes is -1"],
        ),
        (
            |g| g["nodes"][1]["bytes"] = json!(0.5),
            &["\"a\": bytes is 0.5"],
        ),
        (
            |g| g["nodes"][1]["bytes"] = json!(1e30),
            &["\"a\": bytes is 1"],
        ),
        (
            |g| g["nodes"][1]["bytes"] = json!(u64::MAX),
            &["\"a\": bytes is 18446744073709551615"],
        ),
        (
            |g| g["nodes"][1]["bytes"] = json!((1u64 << 61) - 1),
            &["bytes of all nodes add up", "\"a\""],
        ),
        (
            |g| g["nodes"][1]["cost"] = json!(-0.1),
            &["\"a\": cost is -0.1"],
        ),
        (
            |g| g["nodes"][1]["workspace"] = json!(-2),
            &["\"a\": workspace is -2"],
        ),
        (
            |g| {
                g["nodes"][1]["workspace"] = json!((1u64 << 61) - 1);
                g["nodes"][2]["workspace"] = json!(1);
            },
            &["workspace of all nodes add up", "\"a\""],
        ),
        (|g| g["nodes"][1]["bytes"] = json!("4"), &["no joint graph"]),
        (
            |g| g["nodes"][1]["fusibel"] = json!(true),
            &["unknown field `fusibel`"],
        ),
        (
            |g| g["nodes"][2]["view_of"] = json!("x"),
            &["\"b\" is said to be a view of \"x\""],
        ),
        (
            |g| g["nodes"][2]["view_of"] = json!("z"),
            &["\"b\" reads \"z\""],
        ),
        (
            |g| {
                g["nodes"][1]["random"] = json!(true);
                g["nodes"][1]["savable"] = json!(false);
            },
            &[
                "\"a\" is not to be recomputed (random)",
                "\"a\" is not savable",
                "\"dx\" needs it",
            ],
        ),
        (
            |g| {
                g["nodes"][0]["savable"] = json!(false);
                g["nodes"][1]["savable"] = json!(false);
            },
            &[
                "\"x\" is not to be recomputed (input)",
                "\"a\" is not savable",
                "\"dx\" needs it",
            ],
        ),
    ];
    for (edit, wanted) in cases {
        let mut graph = good();
        edit(&mut graph);
        if wanted.is_empty() {
            assert!(partition(&graph.to_string().parse().unwrap(), &Wishes::default()).is_ok());
            continue;
        }
        let told = refusal(&graph);
        for part in *wanted {
            assert!(told.contains(part), "{part} is not in: {told}");
        }
    }
}

#[test]
fn values_without_bytes_cost_nothing() {
    let mut graph = good();
    graph["nodes"][1]["bytes"] = json!(0);
    graph["nodes"][2]["bytes"] = json!(0.0);
    let cut = partition(&graph.to_string().parse().unwrap(), &Wishes::default()).unwrap();
    assert_eq!(
        (cut.saved, cut.cost),
        (vec!["a".to_owned(), "b".to_owned()], 0)
    );
}

#[test]
fn wishes_name_nodes_and_random_ones_stay_banned() {
    let mut graph = good();
    graph["nodes"][1]["random"] = json!(true);
    let graph: JointGraph = graph.to_string().parse().unwrap();
    let told = |wishes: Wishes| partition(&graph, &wishes).unwrap_err().to_string();
    let names = |name: &str| vec![name.to_owned()];
    assert!(
        told(Wishes {
            ban: names("q"),
            ..Wishes::default()
        })
        .contains("ban names \"q\"")
    );
    assert!(
        told(Wishes {
            allow: names("q"),
            ..Wishes::default()
        })
        .contains("allow names \"q\"")
    );
    assert!(
        told(Wishes {
            allow: names("a"),
            ..Wishes::default()
        })
        .contains("\"a\" cannot be recomputed")
    );
}

#[test]
fn very_long_names_are_shortened() {
    let mut graph = good();
    let long = "n".repeat(5000);
    graph["nodes"][2]["inputs"] = json!([long]);
    assert!(refusal(&graph).len() < 300);
}
