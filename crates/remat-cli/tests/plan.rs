//! `remat plan chain` and `remat verify chain`.

mod desk;

use desk::Desk;
use serde_json::{Value, json};

/// The paper's toy example (table 2), in bytes.
fn toy() -> Value {
    let rows = [
        (1.60, 3.05, 954, 954, 2001),
        (2.20, 4.48, 1068, 1068, 2764),
        (2.44, 5.09, 1106, 1108, 3099),
        (2.51, 4.93, 1068, 1066, 3099),
        (2.10, 4.21, 954, 954, 2764),
        (1.43, 3.34, 763, 763, 1908),
        (0.0, 0.0, 0, 0, 0),
    ];
    let stages: Vec<Value> = rows
        .iter()
        .map(|&(forward, backward, activation, saved, overhead)| {
            json!({
                "forward_time": forward,
                "backward_time": backward,
                "activation_bytes": activation * 10_000,
                "saved_bytes": saved * 10_000,
                "backward_overhead_bytes": overhead * 10_000,
            })
        })
        .collect();
    json!({"input_bytes": 7_630_000, "stages": stages})
}

#[test]
fn the_toy_example_is_planned_told_and_verified() {
    let desk = Desk::new();
    desk.file("toy.json", toy());
    let told = desk.told(&[
        "plan", "chain", "toy.json", "--budget", "90MB", "--slots", "exact",
    ]);
    assert!(
        told.contains("Fck1 Fnone2..3 Fall4..7 B7..4 Fck1 Fnone2 Fall3 B3 Fall1..2 B2..1"),
        "{told}"
    );
    assert!(
        told.contains("47.42") && told.contains("86750000 bytes"),
        "{told}"
    );
    let plan = desk.told(&["plan", "chain", "toy.json", "--budget", "90MB", "--json"]);
    let parsed: Value = serde_json::from_str(&plan).unwrap();
    assert_eq!(parsed["sequence"][0], json!(["Fck", 1]));
    assert_eq!(parsed["peak_bytes"], 86_750_000);
    desk.file("plan.json", &plan);
    let verified = desk.told(&["verify", "chain", "toy.json", "plan.json", "--json"]);
    let verified: Value = serde_json::from_str(&verified).unwrap();
    assert_eq!(verified["peak_bytes"], parsed["peak_bytes"]);
    assert_eq!(verified["valid"], true);
}

/// Editors and shells of other systems write it.
#[test]
fn a_byte_order_mark_is_skipped() {
    let desk = Desk::new();
    desk.file("toy.json", format!("\u{feff}{}", toy()));
    let plan = desk.told(&["plan", "chain", "toy.json", "--budget", "90MB", "--json"]);
    desk.file("plan.json", format!("\u{feff}{plan}"));
    desk.told(&["verify", "chain", "toy.json", "plan.json"]);
}

#[test]
fn an_infeasible_budget_is_refused_with_one_that_does() {
    let desk = Desk::new();
    desk.file("toy.json", toy());
    let line = desk.refused(&["plan", "chain", "toy.json", "--budget", "10MB"], 1);
    let smallest: String = line
        .split("--budget ")
        .nth(1)
        .unwrap()
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    desk.told(&["plan", "chain", "toy.json", "--budget", &smallest]);
}

#[test]
fn strategies_are_compared() {
    let desk = Desk::new();
    desk.file("toy.json", toy());
    let told = desk.told(&[
        "plan",
        "chain",
        "toy.json",
        "--budget",
        "90MB",
        "--strategy",
        "persistent,revolve,none",
    ]);
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines.len(), 4, "{told}");
    assert!(
        lines[3].starts_with("none") && lines[3].contains("needs at least"),
        "{told}"
    );
}

#[test]
fn a_curve_falls_from_the_smallest_budget_to_no_overhead() {
    let desk = Desk::new();
    desk.file("toy.json", toy());
    let told = desk.told(&[
        "plan",
        "chain",
        "toy.json",
        "--curve",
        "--strategy",
        "persistent",
        "--slots",
        "exact",
        "--json",
    ]);
    let points: Vec<Value> = told
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(points.len() > 3);
    assert_eq!(points.last().unwrap()["overhead"], 1.0);
    for pair in points.windows(2) {
        assert!(pair[0]["budget_bytes"].as_u64() < pair[1]["budget_bytes"].as_u64());
        assert!(pair[0]["makespan"].as_f64() > pair[1]["makespan"].as_f64());
    }
    let smallest = points[0]["budget_bytes"].to_string();
    desk.told(&["plan", "chain", "toy.json", "--budget", &smallest]);
    let less = (points[0]["budget_bytes"].as_u64().unwrap() - 1).to_string();
    desk.refused(&["plan", "chain", "toy.json", "--budget", &less], 1);
    assert!(
        points
            .iter()
            .all(|point| point["smallest_bytes"] == points[0]["budget_bytes"])
    );
    let table = desk.told(&["plan", "chain", "toy.json", "--curve"]);
    assert_eq!(table.matches("  smallest feasible\n").count(), 9, "{table}");
    for name in [
        "persistent",
        "floating",
        "free",
        "revolve",
        "periodic",
        "chen-sqrt",
        "chen-greedy",
        "treeverse",
        "none",
    ] {
        assert!(table.contains(name), "{name} in {table}");
    }
}

#[test]
fn an_edited_plan_is_not_valid() {
    let desk = Desk::new();
    desk.file("toy.json", toy());
    let plan = desk.told(&["plan", "chain", "toy.json", "--budget", "90MB", "--json"]);
    let plan: Value = serde_json::from_str(&plan).unwrap();
    type Edit = fn(&mut Value);
    let edits: [(Edit, &str); 9] = [
        (
            |plan| plan["peak_byte"] = json!(1),
            "unknown field `peak_byte`",
        ),
        (|plan| plan["makespan"] = json!(1.0), "it says makespan 1"),
        (|plan| plan["peak_bytes"] = json!(1), "it says peak_bytes 1"),
        (
            |plan| plan["budget_bytes"] = json!(80_000_000),
            "above its budget",
        ),
        (|plan| plan["stages"] = json!(3), "it is for 3 stages"),
        (
            |plan| plan["sequence"][0] = json!(["Fnone", 1]),
            "activation 0 is not there",
        ),
        (
            |plan| plan["sequence"][0] = json!(["Fly", 1]),
            "no operation is called \"Fly\"",
        ),
        (
            |plan| plan["sequence"][0] = json!(["Fck", 8]),
            "stages 1 to 7",
        ),
        (
            |plan| {
                plan["sequence"].as_array_mut().unwrap().pop();
            },
            "the gradient of the input is not there",
        ),
    ];
    for (edit, reason) in edits {
        let mut edited = plan.clone();
        edit(&mut edited);
        desk.file("edited.json", edited);
        let line = desk.refused(&["verify", "chain", "toy.json", "edited.json"], 1);
        assert!(line.contains(reason), "{line}");
    }
}

#[test]
fn bad_chains_are_refused_with_the_reason() {
    let desk = Desk::new();
    let stage = |field: &str, value: &str| {
        let mut stage =
            json!({"forward_time": 1, "backward_time": 1, "activation_bytes": 8, "saved_bytes": 8})
                .to_string();
        if !field.is_empty() {
            stage = stage.replacen(
                &format!(
                    "\"{field}\":{}",
                    if field.ends_with("time") { 1 } else { 8 }
                ),
                &format!("\"{field}\":{value}"),
                1,
            );
        }
        format!("{{\"input_bytes\": 4, \"stages\": [{stage}]}}")
    };
    let cases = [
        (String::new(), "no chain"),
        ("[]".into(), "no chain"),
        ("{\"input_bytes\": 4, \"stages\": []}".into(), "no stages"),
        (stage("forward_time", "-1"), "forward_time is -1"),
        (stage("forward_time", "NaN"), "no chain"),
        (stage("backward_time", "1e999"), "no chain"),
        (stage("backward_time", "1e300"), "backward_time is"),
        (stage("saved_bytes", "-8"), "no chain"),
        (stage("saved_bytes", "9223372036854775807"), "2^63 - 1"),
        (stage("saved_bytes", "18446744073709551616"), "no chain"),
        (stage("saved_bytes", "\"8\""), "no chain"),
        (stage("forward_time", "1, \"speed\": 3"), "unknown field"),
    ];
    for (text, reason) in cases {
        desk.file("bad.json", &text);
        for arguments in [&["--budget", "1GiB"][..], &["--curve"]] {
            let line = desk.refused(&[&["plan", "chain", "bad.json"][..], arguments].concat(), 1);
            assert!(
                line.contains(reason) && line.contains("bad.json"),
                "{text}: {line}"
            );
        }
    }
    desk.file("one.json", stage("", ""));
    desk.told(&["plan", "chain", "one.json", "--budget", "1GiB"]);
    desk.told(&["plan", "chain", "one.json", "--budget", "24"]);
    desk.refused(&["plan", "chain", "one.json", "--budget", "23"], 1);
    for arguments in [
        &["one.json"][..],
        &["one.json", "--budget", "0"],
        &["one.json", "--budget", "-3"],
        &["one.json", "--budget", "1GiB", "--slots", "0"],
        &["one.json", "--budget", "1GiB", "--strategy", "periodic:0"],
        &["one.json", "--budget", "1GiB", "--strategy", "best"],
    ] {
        desk.remat(&[&["plan", "chain"][..], arguments].concat())
            .assert()
            .code(2);
    }
    desk.refused(&["plan", "chain", "none.json", "--budget", "1GiB"], 1);
}

/// With slots that are far too coarse, the first point of a curve is the smallest budget all the same.
#[test]
fn a_curve_begins_at_the_smallest_budget_to_the_byte() {
    let desk = Desk::new();
    let stage = |l: u64| {
        json!({"forward_time": 1, "backward_time": 2, "activation_bytes": 900 + 7 * (l % 5), "saved_bytes": 4000,
            "backward_overhead_bytes": 13 * (l % 3)})
    };
    let stages: Vec<Value> = (0..60).map(stage).collect();
    desk.file("net.json", json!({"input_bytes": 1000, "stages": stages}));
    for strategy in ["persistent", "revolve", "floating"] {
        let curve = ["--curve", "--json", "--slots", "20", "--strategy", strategy];
        let told = desk.told(&[&["plan", "chain", "net.json"][..], &curve].concat());
        let first: Value = serde_json::from_str(told.lines().next().unwrap()).unwrap();
        let smallest = first["budget_bytes"].as_u64().unwrap();
        assert_eq!(first["smallest_bytes"], smallest);
        let less = (smallest - 1).to_string();
        let ask = [
            "plan",
            "chain",
            "net.json",
            "--strategy",
            strategy,
            "--budget",
        ];
        let line = desk.refused(&[&ask[..], &[&less]].concat(), 1);
        assert!(line.contains(&format!("--budget {smallest} ")), "{line}");
    }
}

#[test]
fn a_curve_tells_what_it_leaves_out() {
    let desk = Desk::new();
    let stage = json!({"forward_time": 1, "backward_time": 2, "activation_bytes": 1000, "saved_bytes": 4000});
    desk.file(
        "long.json",
        json!({"input_bytes": 1000, "stages": vec![stage; 401]}),
    );
    let told = desk.told(&["plan", "chain", "long.json", "--curve"]);
    let told_json = desk.told(&["plan", "chain", "long.json", "--curve", "--json"]);
    let lines = told_json
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let lines: Vec<Value> = lines.collect();
    for name in ["persistent", "revolve", "floating", "free"] {
        let begin = format!("{name:<12}  left out: 401 stages");
        assert!(told.lines().any(|line| line.starts_with(&begin)), "{told}");
        let left = lines.iter().find(|line| line["strategy"] == name).unwrap();
        assert!(left["left_out"].as_str().unwrap().contains("401 stages"));
    }
    let periodic = lines
        .iter()
        .find(|line| line["strategy"] == "periodic")
        .unwrap();
    assert_eq!(periodic["smallest_bytes"], periodic["budget_bytes"]);
}

#[test]
fn what_is_quoted_of_bad_input_is_short() {
    let desk = Desk::new();
    desk.file("toy.json", toy());
    let key = "k".repeat(100_000);
    desk.file("key.json", format!("{{\"input_bytes\": 4, \"{key}\": 3}}"));
    desk.file("op.json", json!({"sequence": [[key, 1]]}));
    let time = toy().to_string().replacen("1.6", "-1e300", 1);
    desk.file("time.json", time);
    for arguments in [
        &["plan", "chain", "key.json", "--curve"][..],
        &["verify", "chain", "toy.json", "op.json"],
        &["plan", "chain", "time.json", "--curve"],
    ] {
        let line = desk.refused(arguments, 1);
        assert!(line.len() < 1300 && !line.contains("0000000000"), "{line}");
    }
}

/// Files that hold no plan, or none of this chain, are refused: one line each, with the reason, and promptly.
#[test]
fn bad_plans_are_refused_with_the_reason() {
    let desk = Desk::new();
    desk.file("toy.json", toy());
    let many = json!({"sequence": vec![json!(["Fck", 1]); 300_000]});
    let cases = [
        (String::new(), "no plan: EOF"),
        ("[]".into(), "no plan"),
        ("{}".into(), "missing field `sequence`"),
        (
            json!({"sequence": []}).to_string(),
            "the gradient of the input is not there",
        ),
        (
            json!({"sequence": "Fck1"}).to_string(),
            "expected a sequence",
        ),
        (
            json!({"sequence": [["Fck"]]}).to_string(),
            "invalid length 1",
        ),
        (
            json!({"sequence": [["Fck", 0]]}).to_string(),
            "stages 1 to 7",
        ),
        (
            json!({"sequence": [["Fck", -1]]}).to_string(),
            "integer `-1`",
        ),
        (
            json!({"sequence": [["Fck", u64::MAX]]}).to_string(),
            "stages 1 to 7",
        ),
        (
            json!({"sequence": [["B", 1]]}).to_string(),
            "gradient 1 is not there",
        ),
        (
            json!({"sequence": [], "peak_bytes": -1}).to_string(),
            "integer `-1`",
        ),
        (
            "{\"sequence\": [[\"Fck\", 1], [\"Fn".into(),
            "EOF while parsing",
        ),
        (format!("{{\"x\": {}", "[".repeat(100_000)), "no plan"),
        (
            many.to_string(),
            "operation 2 (Fck1): its result is there already",
        ),
    ];
    for (text, reason) in cases {
        desk.file("bad.json", text);
        let line = desk.refused(&["verify", "chain", "toy.json", "bad.json"], 1);
        assert!(line.contains(reason) && line.contains("bad.json"), "{line}");
    }
}

/// Sizes, times and nesting at the edge of what can be counted are planned or refused, never a panic.
#[test]
fn extreme_chains_are_planned_or_refused() {
    let desk = Desk::new();
    let stage = |bytes: u64, time: f64| json!({"forward_time": time, "backward_time": time, "activation_bytes": 8, "saved_bytes": bytes});
    let of = |stages: Vec<Value>| json!({"input_bytes": 4, "stages": stages}).to_string();
    let deep = format!("{{\"about\": {}", "[".repeat(100_000));
    let mut named = stage(8, 1.0);
    named["name"] = json!("a");
    let same = of(vec![named; 2]);
    let cases = [
        (
            of(vec![stage(1 << 60, 1.0); 7]),
            "use --budget 1152921504606847004 ",
        ),
        (of(vec![stage(1 << 60, 1.0); 8]), "2^63 - 1"),
        (of(vec![stage(1 << 63, 1.0)]), "2^63 - 1"),
        (of(vec![stage(u64::MAX, 1.0)]), "2^63 - 1"),
        (of(vec![stage(8, 1e200); 2]), "more than 1e200"),
        (of(vec![stage(8, f64::MIN_POSITIVE / 8.0); 4]), ""),
        (of(vec![stage(0, 0.0); 4]), ""),
        (deep, "recursion limit"),
        (same, ""),
        (
            of(vec![stage(8, 1.0)])[..60].to_owned(),
            "EOF while parsing",
        ),
        (of(vec![stage(8, 1.0)]) + "x", "trailing characters"),
    ];
    for (text, reason) in cases {
        desk.file("net.json", &text);
        let arguments = ["plan", "chain", "net.json", "--budget", "1GiB"];
        match reason {
            "" => drop(desk.told(&arguments)),
            reason => {
                let line = desk.refused(&arguments, 1);
                assert!(line.contains(reason), "{text}: {line}");
            }
        }
    }
}

#[test]
fn ten_thousand_stages_are_planned_or_refused_promptly() {
    let desk = Desk::new();
    let stage = json!({"forward_time": 1, "backward_time": 2, "activation_bytes": 1000, "saved_bytes": 4000});
    let stages = vec![stage; 10_000];
    desk.file("long.json", json!({"input_bytes": 1000, "stages": stages}));
    let line = desk.refused(&["plan", "chain", "long.json", "--budget", "5MB"], 1);
    assert!(
        line.contains("10000 stages") && line.contains("GiB"),
        "{line}"
    );
    let exact = [
        "plan",
        "chain",
        "long.json",
        "--budget",
        "5MB",
        "--slots",
        "exact",
    ];
    let line = desk.refused(&exact, 1);
    assert!(line.contains("GiB"), "{line}");
    let told = desk.told(&["plan", "chain", "long.json", "--curve"]);
    assert_eq!(told.matches("left out: 10000 stages").count(), 4, "{told}");
    let told = desk.told(&[
        "plan",
        "chain",
        "long.json",
        "--budget",
        "5MB",
        "--strategy",
        "periodic,treeverse",
    ]);
    assert_eq!(told.lines().count(), 3, "{told}");
}
