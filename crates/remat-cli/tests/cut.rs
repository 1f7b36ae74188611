//! `remat plan cut` and `remat verify cut`.

mod desk;

use desk::Desk;
use serde_json::{Value, json};

fn node(name: &str, bytes: u64, inputs: &[&str]) -> Value {
    json!({"name": name, "bytes": bytes, "inputs": inputs, "fusible": true, "cost": 1000})
}

fn product(name: &str, bytes: u64, inputs: &[&str]) -> Value {
    json!({"name": name, "bytes": bytes, "inputs": inputs, "compute_bound": true, "cost": 50_000, "op": "mm"})
}

/// Two layers, each a product and what is made of it, and their backward pass.
fn net() -> Value {
    json!({
        "nodes": [
            node("x", 400, &[]), node("w", 100, &[]), node("v", 100, &[]),
            product("m", 4000, &["x", "w"]), node("a", 4000, &["m"]), node("b", 4000, &["a"]),
            product("n", 400, &["b", "v"]), node("y", 400, &["n"]),
            node("g", 400, &[]), node("dn", 400, &["g", "n"]),
            product("dv", 100, &["b", "dn"]), product("db", 4000, &["dn", "v"]),
            node("da", 4000, &["db", "b"]), node("dm", 4000, &["da", "a"]),
            product("dw", 100, &["x", "dm"]), product("dx", 400, &["dm", "w"]),
        ],
        "inputs": ["x", "w", "v"], "tangents": ["g"], "forward_outputs": ["y"], "backward_outputs": ["dv", "dw", "dx"],
    })
}

/// Four products, each of what a kernel makes of the one before, and their backward pass: enough to choose from.
fn deep_net() -> Value {
    let mut nodes = vec![node("h0", 4000, &[]), node("w", 100, &[])];
    for layer in 1..=4 {
        let [m, h] = ["m", "h"].map(|kind| format!("{kind}{layer}"));
        nodes.push(product(&m, 4000, &[&format!("h{}", layer - 1), "w"]));
        nodes.push(node(&h, 4000, &[&m]));
    }
    nodes.push(node("g4", 4000, &[]));
    for layer in (1..=4).rev() {
        let [m, g, dm] = ["m", "g", "dm"].map(|kind| format!("{kind}{layer}"));
        nodes.push(node(&dm, 4000, &[&g, &m]));
        nodes.push(product(
            &format!("dw{layer}"),
            100,
            &[&dm, &format!("h{}", layer - 1)],
        ));
        nodes.push(product(&format!("g{}", layer - 1), 4000, &[&dm, "w"]));
    }
    json!({
        "nodes": nodes, "inputs": ["h0", "w"], "tangents": ["g4"], "forward_outputs": ["h4"],
        "backward_outputs": ["dw4", "dw3", "dw2", "dw1", "g0"],
    })
}

/// A desk with [`net`] on it.
fn desk() -> Desk {
    let desk = Desk::new();
    desk.file("net.json", net());
    desk
}

fn planned(desk: &Desk, arguments: &[&str]) -> Value {
    let told = desk.told(&[&["plan", "cut", "net.json", "--json"][..], arguments].concat());
    serde_json::from_str(&told).unwrap()
}

#[test]
fn a_plan_is_told_and_verified() {
    let desk = desk();
    let plan = planned(&desk, &[]);
    assert_eq!(plan["saved"], json!(["x", "w", "v", "m", "b", "n"]));
    assert_eq!(plan["recomputed"], json!(["a"]));
    assert_eq!(plan["banned"]["m"], "compute-bound");
    assert_eq!(plan["banned"]["b"], "unfusible");
    desk.file("plan.json", &plan);
    let verified: Value =
        serde_json::from_str(&desk.told(&["verify", "cut", "net.json", "plan.json", "--json"]))
            .unwrap();
    for field in ["cost", "saved_bytes", "peak_bytes", "recompute_ns"] {
        assert_eq!(verified[field], plan[field], "{field}");
    }
    let table = desk.told(&["plan", "cut", "net.json"]);
    assert!(table.contains("6: x w v m b n"), "{table}");
    assert!(
        desk.told(&["verify", "cut", "net.json", "plan.json"])
            .contains("yes")
    );
}

#[test]
fn budgets_from_the_smallest_on_are_met_and_larger_ones_are_faster() {
    let desk = desk();
    desk.file("net.json", deep_net());
    let free = planned(&desk, &[])["peak_bytes"].as_u64().unwrap();
    let line = desk.refused(&["plan", "cut", "net.json", "--budget", "10"], 1);
    for several in ["--curve", "--frontier"] {
        let refused = ["plan", "cut", "net.json", "--budget", "10", several];
        assert_eq!(desk.refused(&refused, 1), line);
    }
    let smallest: u64 = line
        .split_whitespace()
        .rev()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();
    assert!(smallest < free);
    let mut before = u64::MAX;
    for budget in (smallest..=free).step_by(400) {
        let plan = planned(&desk, &["--budget", &budget.to_string()]);
        let time = plan["recompute_ns"].as_u64().unwrap();
        assert!(
            plan["peak_bytes"].as_u64().unwrap() <= budget && time <= before,
            "{plan}"
        );
        assert!(plan["bound_ns"].as_u64().unwrap() <= time);
        desk.file("plan.json", &plan);
        desk.told(&["verify", "cut", "net.json", "plan.json"]);
        before = time;
    }
    assert_eq!(
        planned(&desk, &["--budget", &free.to_string()])["saved"],
        planned(&desk, &[])["saved"]
    );
    let curve = desk.told(&["plan", "cut", "net.json", "--curve", "--json"]);
    let first: Value = serde_json::from_str(curve.lines().next().unwrap()).unwrap();
    assert_eq!(first["peak_bytes"], smallest);
}

#[test]
fn the_frontier_has_the_plans_of_the_curve_and_each_is_valid() {
    let desk = desk();
    desk.file("net.json", deep_net());
    let lines = |arguments: &[&str]| -> Vec<Value> {
        let told = desk.told(&[&["plan", "cut", "net.json", "--json"][..], arguments].concat());
        let lines = told.lines().map(serde_json::from_str);
        lines.collect::<Result<_, _>>().unwrap()
    };
    let (plans, curve) = (lines(&["--frontier"]), lines(&["--curve"]));
    assert!(plans.len() > 1 && plans.len() == curve.len());
    for (plan, point) in plans.iter().zip(&curve) {
        for field in ["peak_bytes", "recompute_ns", "cost"] {
            assert_eq!(plan[field], point[field], "{field}");
        }
        desk.file("plan.json", plan);
        desk.told(&["verify", "cut", "net.json", "plan.json"]);
    }
    let budget = curve[1]["peak_bytes"].to_string();
    assert_eq!(lines(&["--frontier", "--budget", &budget]), plans[..2]);
    let table = desk.told(&["plan", "cut", "net.json", "--frontier"]);
    assert_eq!(table.lines().count(), plans.len());
}

#[test]
fn an_edited_plan_is_not_valid() {
    let desk = desk();
    let plan = planned(&desk, &["--budget", "1GiB"]);
    type Edit = fn(&mut Value);
    let edits: [(Edit, &str); 11] = [
        (
            |plan| plan["peak_byte"] = json!(1),
            "unknown field `peak_byte`",
        ),
        (|plan| plan["cost"] = json!(1), "it says cost 1"),
        (|plan| plan["peak_bytes"] = json!(1), "it says peak_bytes 1"),
        (
            |plan| plan["saved_bytes"] = json!(1),
            "it says saved_bytes 1",
        ),
        (
            |plan| plan["recompute_ns"] = json!(1),
            "it says recompute_ns 1",
        ),
        (
            |plan| plan["budget_bytes"] = json!(5000),
            "above its budget",
        ),
        (
            |plan| plan["saved"] = json!(["x", "w", "v", "n"]),
            "is recomputed, which is banned",
        ),
        (
            |plan| plan["saved"] = json!(["w", "v", "m", "b", "n"]),
            "\"x\", an input that is not saved",
        ),
        (
            |plan| plan["saved"][0] = json!("q"),
            "\"q\", which is no node",
        ),
        (
            |plan| plan["saved"][0] = json!("dn"),
            "\"dn\" is saved, but comes of a tangent",
        ),
        (
            |plan| plan["recomputed"] = json!(["m"]),
            "is not what follows",
        ),
    ];
    for (edit, reason) in edits {
        let mut edited = plan.clone();
        edit(&mut edited);
        desk.file("edited.json", edited);
        let line = desk.refused(&["verify", "cut", "net.json", "edited.json"], 1);
        assert!(line.contains(reason), "{line}");
    }
}

#[test]
fn groups_say_what_to_recompute_in_the_consumer() {
    let desk = desk();
    let mut grouped = net();
    for (node, group) in [(4, 1), (5, 1), (12, 2), (13, 2)] {
        grouped["nodes"][node]["group"] = json!(group);
    }
    desk.file("net.json", grouped);
    let line = desk.told(&["plan", "cut", "net.json", "--groups", "--json"]);
    let handover: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(
        (&handover["producer"], &handover["consumer"]),
        (&json!(1), &json!(2))
    );
    assert_eq!(
        (&handover["read"], &handover["recomputed"]),
        (&json!(["m"]), &json!(["a", "b"]))
    );
    assert!(
        desk.told(&["plan", "cut", "net.json", "--groups"])
            .contains("group 1 -> 2")
    );
}

#[test]
fn names_of_nodes_stay_in_their_rows() {
    let desk = desk();
    let named = net().to_string().replace("\"m\"", r#""m\u001b[2J\nfake""#);
    desk.file("net.json", named);
    for arguments in [&[][..], &["--budget=1GiB"], &["--frontier"]] {
        let told = desk.told(&[&["plan", "cut", "net.json"][..], arguments].concat());
        assert!(told.contains("m [2J fake"), "{told:?}");
    }
}

#[test]
fn bad_graphs_are_refused_with_file_and_node() {
    let desk = desk();
    let mut bad = net();
    bad["nodes"][5]["inputs"] = json!(["nobody"]);
    desk.file("bad.json", bad);
    for arguments in [&[][..], &["--budget", "1GiB"], &["--groups"]] {
        let line = desk.refused(&[&["plan", "cut", "bad.json"][..], arguments].concat(), 1);
        assert!(line.contains("bad.json: \"b\" reads \"nobody\""), "{line}");
    }
    desk.refused(&["plan", "cut", "none.json"], 1);
    desk.file("deep.json", "[".repeat(100_000));
    assert!(
        desk.refused(&["plan", "cut", "deep.json"], 1)
            .contains("no joint graph")
    );
    desk.remat(&["plan", "cut", "net.json", "--groups", "--budget", "5"])
        .assert()
        .code(2);
}
