//! `remat plan step` and `remat verify step`.

mod desk;

use desk::Desk;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// A constant, a result that an op reads, and one of these two that stays.
const TRACE: &str = r#"{"remat-trace":1}
{"const":{"t":0,"b":1000}}
{"op":{"n":"exp","i":[0],"o":[{"t":1,"b":400}],"c":7000}}
{"mark":{"n":"backward"}}
{"op":{"n":"sum","i":[1],"o":[{"t":2,"b":40}],"w":60,"c":5000}}
{"rel":{"t":1}}
{"end":{"events":5}}
"#;

/// A log in which a tensor is changed.
const LOG: &str = r#"{"INSTRUCTION":"ANNOTATE","ANNOTATION":"START"}
{"INSTRUCTION":"CONSTANT","NAME":"x0"}
{"INSTRUCTION":"MEMORY","NAME":"x0","MEMORY":"1000"}
{"INSTRUCTION":"CALL","NAME":"aten::exp","ARGS":["x0"],"RESULT":["x1"],"TIME":"7000"}
{"INSTRUCTION":"MEMORY","NAME":"x1","MEMORY":"400"}
{"INSTRUCTION":"ALIAS","NAME":"x1","ALIAS":"-1"}
{"INSTRUCTION":"MUTATE","NAME":"aten::relu_","ARGS":["x1"],"MUTATE":[0],"TIME":"3000"}
{"INSTRUCTION":"RELEASE","NAME":"x0"}
"#;

/// A desk with [`TRACE`] and [`LOG`] on it.
fn desk() -> Desk {
    let desk = Desk::new();
    desk.file("step.trace", TRACE);
    desk.file("step.log", LOG);
    desk
}

fn plan_file(desk: &Desk, name: &str) -> Value {
    let text = fs::read_to_string(desk.folder.path().join(name)).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// The lines of JSON that a command tells.
fn lines(desk: &Desk, arguments: &[&str]) -> Vec<Value> {
    let told = desk.told(&[arguments, &["--json"]].concat());
    let lines = told.lines().map(serde_json::from_str);
    lines.collect::<Result<_, _>>().unwrap()
}

fn trace(name: &str) -> String {
    let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces");
    traces
        .join(format!("{name}.trace.zst"))
        .display()
        .to_string()
}

/// A plan of [`TRACE`] in which each op runs once, and the result goes after its use.
fn plan() -> Value {
    json!({
        "remat-step-plan": 1, "budget_bytes": 1500, "peak_bytes": 1500, "cost_ns": 12000, "recompute_ns": 0,
        "bound_ns": 12000, "seed": 0, "iterations": 0, "ops": 3, "storages": 3,
        "steps": [["run", 0], ["run", 1], ["run", 2], ["free", 1]],
    })
}

#[test]
fn a_plan_by_hand_is_verified() {
    let desk = desk();
    desk.file("plan.json", plan());
    let found = lines(&desk, &["verify", "step", "step.trace", "plan.json"]);
    let expected = json!({
        "valid": true, "ops": 3, "reruns": 0, "frees": 1, "cost_ns": 12000, "recompute_ns": 0, "peak_bytes": 1500,
        "budget_bytes": 1500, "arena_bytes": null,
    });
    assert_eq!(found, [expected]);
    let table = desk.told(&["verify", "step", "step.trace", "plan.json"]);
    assert!(table.starts_with("valid        yes\n"), "{table}");
    assert!(
        table.contains("(1500 bytes)") && table.contains("12.00 us"),
        "{table}"
    );
}

#[test]
fn mutations_of_a_log_write_into_copies() {
    let desk = desk();
    let mut copied = plan();
    copied["cost_ns"] = json!(10000);
    copied["bound_ns"] = json!(10000);
    (copied["peak_bytes"], copied["budget_bytes"]) = (json!(1800), json!(1800));
    desk.file("plan.json", copied);
    let found = lines(&desk, &["verify", "step", "step.log", "plan.json"]);
    assert_eq!(found[0]["peak_bytes"], 1800);
}

#[test]
fn a_plan_has_addresses_where_they_are_asked_for() {
    let desk = desk();
    let plan = [
        "plan",
        "step",
        "step.trace",
        "--budget",
        "2kB",
        "--iterations",
        "1",
    ];
    let told = desk.told(&[&plan[..], &["--addresses", "--out", "plan.json"]].concat());
    // The constant, the first result, the second one and the workspace, each at a multiple of 64.
    assert!(
        told.contains("1.56 KiB (1600 bytes), 1.0667 of the peak"),
        "{told}"
    );
    let addresses = &plan_file(&desk, "plan.json")["addresses"];
    assert_eq!(addresses["alignment"], 64);
    assert_eq!(addresses["offsets"].as_array().map(Vec::len), Some(4));
    let verify = ["verify", "step", "step.trace", "plan.json"];
    assert_eq!(lines(&desk, &verify)[0]["arena_bytes"], addresses["bytes"]);
    assert!(desk.told(&verify).contains("arena"));
    let tight = lines(&desk, &[&plan[..], &["--addresses=4"]].concat());
    assert_eq!(
        (&tight[0]["arena_bytes"], &tight[0]["peak_bytes"]),
        (&json!(1500), &json!(1500))
    );
    assert_eq!(lines(&desk, &plan)[0]["arena_bytes"], Value::Null);
    let mut moved = plan_file(&desk, "plan.json");
    moved["addresses"]["offsets"][1] = json!(64);
    desk.file("plan.json", moved);
    let reason = desk.refused(&verify, 1);
    assert!(
        reason.contains("block 1 overlaps another one in use"),
        "{reason}"
    );
    let output = desk
        .remat(&[&plan[..], &["--addresses=48"]].concat())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let reason = String::from_utf8(output.stderr).unwrap();
    assert!(
        reason.contains("alignment 48 is no power of two"),
        "{reason}"
    );
}

#[test]
fn an_edited_plan_is_not_valid() {
    let desk = desk();
    type Edit = fn(&mut Value);
    let edits: [(Edit, &str); 9] = [
        (
            |plan| plan["remat-step-plan"] = json!(2),
            "it is a plan of version 2",
        ),
        (
            |plan| plan["peak_bytes"] = json!(1),
            "it says peak_bytes 1, found is 1500",
        ),
        (
            |plan| plan["cost_ns"] = json!(1),
            "it says cost_ns 1, found is 12000",
        ),
        (
            |plan| plan["recompute_ns"] = json!(1),
            "it says recompute_ns 1, found is 0",
        ),
        (
            |plan| plan["budget_bytes"] = json!(1499),
            "above its budget of 1499",
        ),
        (
            |plan| plan["steps"][2] = json!(["free", 1]),
            "step 3 ([\"free\", 1]): storage 1 is not in memory",
        ),
        (
            |plan| plan["steps"][3] = json!(["free", 0]),
            "step 3 ([\"free\", 0]): storage 0 is a constant",
        ),
        (
            |plan| plan["steps"] = json!([]),
            "at the end of the plan: op 0 never ran",
        ),
        (
            |plan| plan["steps"][0] = json!(["run", 4_294_967_295u32]),
            "the recording has 3 ops",
        ),
    ];
    for (edit, reason) in edits {
        let mut edited = plan();
        edit(&mut edited);
        desk.file("edited.json", edited);
        let line = desk.refused(&["verify", "step", "step.trace", "edited.json"], 1);
        assert!(
            line.starts_with("remat: edited.json: not valid: ") && line.contains(reason),
            "{line}"
        );
    }
}

#[test]
fn files_that_are_no_plan_are_refused() {
    let desk = desk();
    let text = plan().to_string();
    let unlike = |from: &str, to: &str| {
        assert!(text.contains(from));
        text.replace(from, to)
    };
    let files = [
        String::new(),
        "null".into(),
        "[1, 2]".into(),
        "[".repeat(100_000),
        text[..text.len() / 2].to_owned(),
        format!("{text}{text}"),
        unlike("\"steps\"", "\"stages\""),
        unlike("\"seed\"", "\"sead\":0,\"seed\""),
        unlike("\"peak_bytes\":1500", "\"peak_bytes\":-1"),
        unlike("\"peak_bytes\":1500", "\"peak_bytes\":1e99"),
        unlike("[\"run\",0]", "[\"evict\",0]"),
        unlike("[\"run\",0]", "[\"run\",4294967296]"),
        unlike("[\"run\",0]", "[\"run\",0,\"in a hurry\"]"),
        unlike("[\"run\",0]", "[\"run\"]"),
    ];
    for file in files {
        desk.file("plan.json", &file);
        let line = desk.refused(&["verify", "step", "step.trace", "plan.json"], 1);
        assert!(line.contains("plan.json: no plan: "), "{line}");
        assert!(line.contains("`remat plan step --out`"), "{line}");
    }
    fs::write(desk.folder.path().join("plan.json"), b"\xff\xfe").unwrap();
    let line = desk.refused(&["verify", "step", "step.trace", "plan.json"], 1);
    assert!(line.contains("UTF-8"), "{line}");
    desk.refused(&["verify", "step", "step.trace", "none.json"], 1);
}

#[test]
fn a_plan_of_another_recording_is_not_valid() {
    let desk = desk();
    desk.file("plan.json", plan());
    let line = desk.refused(&["verify", "step", &trace("lstm"), "plan.json"], 1);
    assert!(
        line.contains("not valid: it says ops 3, found is "),
        "{line}"
    );
    let line = desk.refused(&["verify", "step", "step.log", "plan.json"], 1);
    assert!(
        line.contains("not valid: it says peak_bytes 1500, found is 1800"),
        "{line}"
    );
}

#[test]
fn bad_recordings_are_refused_with_file_and_line() {
    let desk = desk();
    desk.file("plan.json", plan());
    desk.file(
        "bad.trace",
        TRACE.replace("\"rel\":{\"t\":1}", "\"rel\":{\"t\":7}"),
    );
    for arguments in [
        &["plan", "step", "bad.trace", "--ratio=1"][..],
        &["verify", "step", "bad.trace", "plan.json"],
    ] {
        let line = desk.refused(arguments, 1);
        assert!(
            line.contains("bad.trace") && line.contains("tensor 7"),
            "{line}"
        );
    }
    desk.refused(&["plan", "step", "none.trace", "--curve"], 1);
}

#[test]
fn a_valid_step_above_the_limits_of_planning_is_refused_with_them() {
    const LARGEST: u64 = 1 << 53;
    let desk = Desk::new();
    for (name, op, sum) in [
        ("sizes", json!({"n": "a", "w": LARGEST}), LARGEST * 300),
        ("costs", json!({"n": "a", "c": LARGEST}), LARGEST * 300),
    ] {
        let line = json!({ "op": op }).to_string() + "\n";
        let end = json!({"end": {"events": 300}});
        let file = format!("{name}.trace");
        desk.file(
            &file,
            format!("{{\"remat-trace\":1}}\n{}{end}\n", line.repeat(300)),
        );
        desk.told(&["trace", "check", &file]);
        let line = desk.refused(&["plan", "step", &file, "--ratio=1"], 1);
        let wanted = format!(
            "remat: {file}: the {name} of the step add up to {sum}, and steps are planned up to 2^61; \
             record a shorter one\n"
        );
        assert_eq!(line, wanted);
    }
}

#[test]
fn arguments_that_contradict_one_another_are_refused() {
    let desk = desk();
    let begin = ["plan", "step", "step.trace"];
    for arguments in [
        &[][..],
        &["--budget=1GiB", "--ratio=0.5"],
        &["--budget=1GiB", "--curve"],
        &["--ratio=0"],
        &["--ratio=-1"],
        &["--ratio=1", "--seconds=0"],
        &["--ratio=1", "--seconds=1e300"],
        &["--ratio=1", "--seconds=1", "--iterations=1"],
        &["--curve", "--out=plan.json"],
        &["--ratio=0.5,0.4", "--out=plan.json"],
    ] {
        let given = [&begin[..], arguments].concat();
        let output = desk.remat(&given).assert().code(2);
        assert!(!output.get_output().stderr.is_empty());
    }
    assert!(!desk.folder.path().join("plan.json").exists());
}

#[test]
fn a_plan_does_not_overwrite_the_step_that_it_is_of() {
    let desk = desk();
    let given = ["plan", "step", "step.trace", "--ratio=1", "--out"];
    let place = desk.folder.path().join("step.trace");
    for out in ["step.trace", "./step.trace", place.to_str().unwrap()] {
        let line = desk.refused(&[&given[..], &[out]].concat(), 2);
        assert!(line.contains("name another file"), "{line}");
    }
    assert_eq!(std::fs::read_to_string(place).unwrap(), TRACE);
}

#[test]
fn numbers_that_are_none_are_told_with_the_value_and_the_way_out() {
    let desk = desk();
    for (arguments, value) in [
        (
            ["--ratio=1", "--iterations", "1.5"],
            "'1.5' for '--iterations <N>'",
        ),
        (
            ["--ratio=1", "--iterations", "-1"],
            "'-1' for '--iterations <N>'",
        ),
        (["--ratio=1", "--seed", "one"], "'one' for '--seed <N>'"),
    ] {
        let given = [&["plan", "step", "step.trace"][..], &arguments].concat();
        let output = desk.remat(&given).assert().code(2);
        let told = String::from_utf8(output.get_output().stderr.clone()).unwrap();
        let line = told.lines().next().unwrap();
        assert!(line.contains(value), "{line}");
        assert!(
            line.ends_with("is needed, for example 3; see --help"),
            "{line}"
        );
    }
}

#[test]
fn a_plan_is_written_though_nobody_reads_what_is_told() {
    let desk = desk();
    let out = ["--iterations=1", "--out=plan.json"];
    let mut child = Command::new(assert_cmd::cargo::cargo_bin!("remat"))
        .args(["plan", "step", "step.trace", "--ratio=1"])
        .args(out)
        .current_dir(desk.folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
    assert_eq!(plan_file(&desk, "plan.json")["ops"], 3);
}

#[test]
fn a_plan_that_cannot_be_written_is_not_searched_for() {
    let desk = desk();
    for out in ["no/plan.json", "."] {
        let search = ["--seconds=1e6", "--out", out];
        let line = desk.refused(
            &[&["plan", "step", "step.trace", "--ratio=1"], &search[..]].concat(),
            1,
        );
        assert!(line.contains("cannot be written: "), "{line}");
    }
}

#[test]
fn a_plan_goes_to_standard_output_and_what_is_told_of_it_beside() {
    let desk = desk();
    let given = ["plan", "step", "step.trace", "--ratio=1", "--iterations=1"];
    let asked = [&given[..], &["--out", "-"]].concat();
    let ended = desk.remat(&asked).assert().success();
    let plan: Value = serde_json::from_slice(&ended.get_output().stdout).unwrap();
    assert_eq!(plan["ops"], 3);
    let told = String::from_utf8(ended.get_output().stderr.clone()).unwrap();
    assert!(told.lines().any(|row| row.starts_with("peak ")), "{told}");
    let line = desk.refused(&[&asked[..], &["--json"]].concat(), 2);
    assert!(line.contains("both write to standard output"), "{line}");
    assert!(!desk.folder.path().join("-").exists());
}

#[test]
fn a_step_that_is_called_like_its_plan_not_yet_whole_stays() {
    let desk = desk();
    let step = desk.file("plan.json.partial", TRACE);
    let given = ["plan", "step", "plan.json.partial", "--iterations=1"];
    desk.told(&[&given[..], &["--ratio=1", "--out=plan.json"]].concat());
    assert_eq!(plan_file(&desk, "plan.json")["ops"], 3);
    assert_eq!(std::fs::read_to_string(step).unwrap(), TRACE);
}

#[test]
fn a_budget_that_cannot_be_met_is_refused() {
    let desk = desk();
    for arguments in [["--budget", "1100"], ["--ratio", "0.1"]] {
        let given = [
            &["plan", "step", "step.trace", "--iterations=3"],
            &arguments[..],
        ]
        .concat();
        let line = desk.refused(&given, 1);
        assert!(line.contains("step.trace: no plan fits into "), "{line}");
    }
    assert_eq!(fs::read_dir(desk.folder.path()).unwrap().count(), 2);
}

#[test]
fn the_memory_without_a_limit_is_that_of_simulate() {
    let desk = desk();
    let (gpt, lstm) = (trace("gpt"), trace("lstm"));
    for log in ["step.trace", "step.log", &gpt, &lstm] {
        let planned = lines(
            &desk,
            &["plan", "step", log, "--ratio=1.5", "--iterations=1"],
        );
        let told = desk.told(&["simulate", log, "--ratio=1", "--policy=dtr", "--json"]);
        let simulated: Value = serde_json::from_str(&told).unwrap();
        for (ours, theirs) in [("base_memory", "base_memory"), ("cost_ns", "base_cost")] {
            assert_eq!(planned[0][ours], simulated[theirs], "{log}");
        }
        let memory = planned[0]["base_memory"].as_u64().unwrap();
        assert_eq!(planned[0]["budget_bytes"], memory + memory / 2, "{log}");
    }
}

#[test]
fn a_step_in_its_own_memory_recomputes_nothing() {
    let desk = desk();
    for name in ["lstm", "unet"] {
        let log = trace(name);
        let given = [
            "plan",
            "step",
            &log,
            "--ratio=1",
            "--iterations=3",
            "--out=plan.json",
        ];
        let told = lines(&desk, &given);
        assert_eq!(told.len(), 1);
        assert_eq!(
            (&told[0]["recompute_ns"], &told[0]["gap"]),
            (&json!(0), &json!(0.0)),
            "{name}"
        );
        assert_eq!(told[0]["bound_ns"], told[0]["cost_ns"], "{name}");
        let verified = lines(&desk, &["verify", "step", &log, "plan.json"]);
        for field in ["peak_bytes", "cost_ns", "recompute_ns", "budget_bytes"] {
            assert_eq!(verified[0][field], told[0][field], "{name} {field}");
        }
    }
}

#[test]
fn rounds_and_seed_make_the_plan_and_it_is_no_worse_than_the_policies() {
    let desk = desk();
    let log = trace("gpt");
    let given = [
        "plan",
        "step",
        &log,
        "--ratio=0.5",
        "--iterations=3",
        "--seed=7",
    ];
    let out = |name: &str| lines(&desk, &[&given[..], &["--out", name]].concat());
    let told = out("one.json");
    assert_eq!(told, out("two.json"));
    let plan = plan_file(&desk, "one.json");
    assert_eq!(plan, plan_file(&desk, "two.json"));
    for field in [
        "budget_bytes",
        "peak_bytes",
        "cost_ns",
        "recompute_ns",
        "bound_ns",
        "seed",
        "iterations",
    ] {
        assert_eq!(plan[field], told[0][field], "{field}");
    }
    assert_eq!(plan["seed"], 7);
    assert_eq!(fs::read_dir(desk.folder.path()).unwrap().count(), 4);
    let number = |value: &Value| value.as_u64().unwrap();
    assert!(number(&plan["peak_bytes"]) <= number(&plan["budget_bytes"]));
    assert!(number(&plan["recompute_ns"]) <= number(&told[0]["online"]["recompute_ns"]));
    assert!(number(&plan["recompute_ns"]) > 0);
    desk.told(&["verify", "step", &log, "one.json"]);
    let table = desk.told(&given);
    for row in [
        "budget",
        "peak",
        "overhead",
        "bound",
        "best online",
        "rounds",
        "seed",
    ] {
        assert!(
            table.lines().any(|line| line.starts_with(row)),
            "{row}: {table}"
        );
    }
    assert!(
        table.contains("best schedule whose first runs are in program order"),
        "{table}"
    );
}

#[test]
fn a_larger_budget_of_a_curve_never_costs_more_and_its_bound_is_never_higher() {
    let desk = desk();
    let log = trace("gpt");
    let told = lines(
        &desk,
        &[
            "plan",
            "step",
            &log,
            "--curve",
            "--ratio=0.5,0.9,0.7,0.9",
            "--iterations=2",
        ],
    );
    let ratios: Vec<f64> = told
        .iter()
        .map(|line| line["ratio"].as_f64().unwrap())
        .collect();
    assert_eq!(ratios, [0.9, 0.7, 0.5]);
    for pair in told.windows(2) {
        for field in ["recompute_ns", "bound_ns"] {
            assert!(
                pair[0][field].as_u64() <= pair[1][field].as_u64(),
                "{field}"
            );
        }
    }
    let table = desk.told(&["plan", "step", &log, "--ratio=0.9,0.5", "--iterations=2"]);
    assert_eq!(
        table.lines().filter(|line| line.starts_with("0.")).count(),
        2,
        "{table}"
    );
}

#[test]
fn a_curve_shows_the_budgets_that_can_be_met_and_tells_which_cannot() {
    let desk = desk();
    let log = trace("lstm");
    let given = [
        "plan",
        "step",
        &log,
        "--ratio=1,0.0001",
        "--iterations=1",
        "--json",
    ];
    let output = desk.remat(&given).assert().success().get_output().clone();
    let told = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = told
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines[0]["recompute_ns"], 0);
    assert_eq!(
        (&lines[1]["peak_bytes"], &lines[1]["online"]),
        (&Value::Null, &Value::Null)
    );
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert_eq!(complaint.lines().count(), 1, "{complaint}");
    assert!(complaint.contains("no plan fits into "), "{complaint}");
}

/// A step whose first result is read again at the end, and a plan of it that makes room by dropping it.
const AGAIN: &str = r#"{"remat-trace":1}
{"const":{"t":0,"b":64}}
{"op":{"n":"f","i":[0],"o":[{"t":1,"b":128}],"c":7000}}
{"op":{"n":"g","i":[1],"o":[{"t":2,"b":64}],"c":5000}}
{"op":{"n":"h","i":[0],"o":[{"t":3,"b":192}],"w":64,"c":4000}}
{"rel":{"t":3}}
{"op":{"n":"k","i":[1,2],"o":[{"t":4,"b":64}],"c":4000}}
{"rel":{"t":1}}
{"rel":{"t":2}}
{"pin":{"t":4}}
{"end":{"events":9}}
"#;

fn again() -> Value {
    json!({
        "remat-step-plan": 1, "budget_bytes": 448, "peak_bytes": 384, "cost_ns": 20000, "recompute_ns": 7000,
        "bound_ns": 20000, "seed": 0, "iterations": 0, "ops": 5, "storages": 5,
        "steps": [["run", 0], ["run", 1], ["run", 2], ["free", 1], ["run", 3], ["free", 3], ["run", 1], ["run", 4],
            ["free", 1], ["free", 2]],
        "addresses": {"bytes": 384, "alignment": 64, "offsets": [0, 64, 192, 64, 320, 192, 320]},
    })
}

#[test]
fn the_engine_runs_a_plan_beside_policies() {
    let desk = desk();
    desk.file("again.trace", AGAIN);
    let mut plan = again();
    plan["addresses"]["offsets"] = json!([0, 64, 320, 64, 256, 64, 256]);
    plan["addresses"]["bytes"] = json!(384);
    desk.file("plan.json", &plan);
    let simulate = ["simulate", "again.trace", "--plan", "plan.json"];
    let beside = [&simulate[..], &["--policy", "lru,dtr-eq"]].concat();
    let table = desk.told(&beside);
    let rows: Vec<Vec<&str>> = table
        .lines()
        .skip(3)
        .map(|row| row.split_whitespace().collect())
        .collect();
    let names: Vec<&str> = rows.iter().map(|row| row[0]).collect();
    assert_eq!(names, ["lru", "dtr-eq", "plan"], "{table}");
    assert!(rows.iter().all(|row| row[2..4] == ["448", "B"]), "{table}");
    assert_eq!(
        rows[2][4..],
        ["ok", "1.350", "384", "B", "1", "1"],
        "{table}"
    );
    for (arena, budget) in [(&[][..], 448), (&["--pool", "arena"][..], 384)] {
        let rows = lines(&desk, &[&simulate[..], arena].concat());
        assert_eq!(rows.len(), 1);
        let row = &rows[0];
        assert_eq!(
            (&row["policy"], &row["dealloc"]),
            (&json!("plan"), &json!("plan"))
        );
        assert_eq!(
            (&row["status"], &row["budget_bytes"]),
            (&json!("ok"), &json!(budget))
        );
        assert_eq!(
            (&row["peak_bytes"], &row["remat_cost"]),
            (&json!(384), &json!(7000))
        );
        assert_eq!(row["clock"], 27001);
        if !arena.is_empty() {
            for none in ["searches", "shortages", "moved_bytes"] {
                assert_eq!(row[none], 0, "{none}");
            }
            assert_eq!(row.get("min_budget"), None);
        }
    }
    // The limit is that of every run.
    let limited = [&simulate[..], &["--thrash-limit", "0.1"]].concat();
    assert_eq!(lines(&desk, &limited)[0]["status"], "thrash");
}

#[test]
fn plans_that_do_not_belong_to_the_log_are_refused() {
    let desk = desk();
    desk.file("again.trace", AGAIN);
    let mut plan = again();
    plan.as_object_mut().unwrap().remove("addresses");
    desk.file("plan.json", &plan);
    let reason = desk.refused(&["simulate", "step.trace", "--plan", "plan.json"], 1);
    assert!(
        reason.contains("plan.json: no valid plan of step.trace: it says ops 5, found is 3"),
        "{reason}"
    );
    let arena = [
        "simulate",
        "again.trace",
        "--pool",
        "arena",
        "--plan",
        "plan.json",
    ];
    let reason = desk.refused(&arena, 1);
    assert!(
        reason.contains("has no addresses") && reason.contains("--addresses"),
        "{reason}"
    );
    desk.file("plan.json", "{}");
    let reason = desk.refused(&["simulate", "again.trace", "--plan", "plan.json"], 1);
    assert!(reason.contains("plan.json: no plan"), "{reason}");
    let two = [
        "simulate",
        "again.trace",
        "step.trace",
        "--plan",
        "plan.json",
    ];
    assert!(desk.refused(&two, 2).contains("2 logs are named"));
    let piped = ["simulate", "-", "--plan", "plan.json"];
    assert!(desk.refused(&piped, 2).contains("standard input"));
    let output = desk.remat(&[
        "simulate",
        "again.trace",
        "--plan",
        "plan.json",
        "--ratio",
        "0.5",
    ]);
    let output = { output }.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn the_engine_takes_of_recorded_steps_what_their_plans_say() {
    for name in ["lstm", "resnet"] {
        let (desk, trace) = (desk(), trace(name));
        let plan = [
            "plan",
            "step",
            &trace,
            "--ratio",
            "0.7",
            "--iterations",
            "2",
        ];
        desk.told(&[&plan[..], &["--addresses", "--out", "plan.json"]].concat());
        let said = plan_file(&desk, "plan.json");
        for arena in [&[][..], &["--pool", "arena"]] {
            let simulate = ["simulate", &trace, "--plan", "plan.json"];
            let row = &lines(&desk, &[&simulate[..], arena].concat())[0];
            assert_eq!(row["status"], "ok", "{name}");
            assert_eq!(row["peak_bytes"], said["peak_bytes"], "{name}");
            assert_eq!(row["remat_cost"], said["recompute_ns"], "{name}");
        }
    }
}
