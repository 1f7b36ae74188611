//! `remat simulate` as it is called from a shell: output, errors, exit codes.

use assert_cmd::Command;
use serde_json::Value;
use std::path::{Path, PathBuf};

fn simulate(arguments: &[&str]) -> Command {
    remat("simulate", arguments)
}

fn remat(subcommand: &str, arguments: &[&str]) -> Command {
    let mut command = assert_cmd::cargo::cargo_bin_cmd!("remat");
    command.arg(subcommand).args(arguments);
    command
}

fn trace(name: &str) -> PathBuf {
    let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces");
    traces.join(name)
}

/// Standard output, standard error, exit code.
fn answer(command: &mut Command) -> (String, String, Option<i32>) {
    let output = command.output().unwrap();
    let utf8 = |bytes| String::from_utf8(bytes).unwrap();
    (
        utf8(output.stdout),
        utf8(output.stderr),
        output.status.code(),
    )
}

/// A constant of 100 bytes and two results of as many, of which the first is read again.
const LOG: &str = r#"{"INSTRUCTION":"ANNOTATE","ANNOTATION":"START"}
{"INSTRUCTION":"CONSTANT","NAME":"c"}
{"INSTRUCTION":"MEMORY","NAME":"c","MEMORY":"100"}
{"INSTRUCTION":"CALL","NAME":"f","ARGS":["c"],"RESULT":["x"],"TIME":"10"}
{"INSTRUCTION":"MEMORY","NAME":"x","MEMORY":"100"}
{"INSTRUCTION":"ALIAS","NAME":"x","ALIAS":"-1"}
{"INSTRUCTION":"CALL","NAME":"g","ARGS":["c"],"RESULT":["y"],"TIME":"30"}
{"INSTRUCTION":"MEMORY","NAME":"y","MEMORY":"100"}
{"INSTRUCTION":"ALIAS","NAME":"y","ALIAS":"-1"}
{"INSTRUCTION":"RELEASE","NAME":"y"}
"#;

#[test]
fn a_table_for_people() {
    let mut command = simulate(&["-", "--policy", "lru", "--ratio", "1,0.7,0.3"]);
    let (out, err, code) = answer(command.write_stdin(LOG));
    assert_eq!((err.as_str(), code), ("", Some(0)));
    let expected = "
-: 300 B and 40 ns without a limit; constants 100 B, the largest op 200 B
policy                    ratio       budget  status  overhead         peak  evictions  replays
lru                       1.000        300 B  ok         1.025        300 B          0        0
lru                       0.700        210 B  ok         1.275        200 B          1        1
lru                       0.300         90 B  oom            -          0 B          0        0
";
    assert_eq!(out, expected);
}

#[test]
fn a_line_of_json_a_run() {
    let mut command = simulate(&["-", "--policy", "lru,size", "--ratio", "0.7", "--json"]);
    let (out, err, code) = answer(command.write_stdin(LOG));
    assert_eq!((err.as_str(), code), ("", Some(0)));
    let lines: Vec<Value> = out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 2);
    let mut first = lines[0].clone();
    assert!(first["wall_seconds"].as_f64().unwrap() > 0.0);
    first.as_object_mut().unwrap().remove("wall_seconds");
    let expected = serde_json::json!({
        "log": "-",
        "policy": "lru",
        "dealloc": "eager",
        "engine": "paper",
        "ratio": 0.7,
        "budget_bytes": 210,
        "status": "ok",
        "base_memory": 300,
        "base_cost": 40,
        "const_bytes": 100,
        "bottleneck_bytes": 200,
        "clock": 51,
        "remat_cost": 10,
        "peak_bytes": 200,
        "overhead": 1.275,
        "evictions": 1,
        "rematerializations": 1,
        "score_evaluations": 1,
        "metadata_accesses": 1,
        "pool": "fungible",
    });
    assert_eq!(first, expected);
    assert_eq!(lines[1]["policy"], "size");
}

/// In an arena a line has more; wall times apart, lines do not depend on the number of threads.
#[test]
fn arenas_tell_more_and_the_same_on_any_number_of_threads() {
    let unet = trace("unet.trace.zst");
    let lines = |jobs: &str| -> Vec<Value> {
        let log = unet.to_str().unwrap();
        let policies = "--policy=coop,dte,dtr-eq";
        let mut command = simulate(&[
            log,
            policies,
            "--pool=arena",
            "--ratio=0.7,0.9",
            "--json",
            jobs,
        ]);
        let (out, err, code) = answer(&mut command);
        assert_eq!((err.as_str(), code), ("", Some(0)));
        let line = |line: &str| {
            let mut line: Value = serde_json::from_str(line).unwrap();
            for wall in ["wall_seconds", "search_ns_mean"] {
                let time = line.as_object_mut().unwrap().remove(wall).unwrap();
                assert!(time.as_f64().unwrap() > 0.0, "{wall}");
            }
            line
        };
        out.lines().map(line).collect()
    };
    let alone = lines("--jobs=1");
    assert_eq!(alone, lines("--jobs=3"));
    assert_eq!(alone.len(), 6);
    for line in &alone {
        let number = |key: &str| {
            line[key]
                .as_f64()
                .unwrap_or_else(|| panic!("{key} of {line}"))
        };
        assert_eq!(
            (&line["pool"], &line["status"]),
            (&"arena".into(), &"ok".into())
        );
        assert!(
            number("fragmentation_mean") <= number("fragmentation_max")
                && number("fragmentation_max") < 1.0
        );
        assert!(number("unused_evicted_bytes") <= number("evicted_bytes"));
        assert!(number("min_budget") < number("budget_bytes"));
        assert!(number("budget_bytes") < number("cutoff_budget"));
        let windows = line["policy"] == "coop";
        assert_eq!(windows, number("searches") <= number("shortages"), "{line}");
    }
}

#[test]
fn what_cannot_be_an_arena_is_told_in_a_line() {
    for (arguments, words) in [
        (&["-", "--policy", "coop"][..], "add --pool arena"),
        (&["-", "--policy", "dte"], "add --pool arena"),
        (
            &["-", "--pool", "arena", "--alignment", "48"],
            "48 is no power of two",
        ),
        (&["-", "--pool", "arena", "--alignment", "0"], "it is zero"),
        (&["-", "--pool", "heap"], "arena"),
        (&["-", "--without", "windows"], "partition"),
    ] {
        let (out, err, code) = answer(simulate(arguments).write_stdin(LOG));
        assert_eq!((out.as_str(), code), ("", Some(2)), "{arguments:?}");
        assert!(err.contains(words), "{err}");
    }
    // A budget below the alignment, or below what an op needs, is a run that does not fit.
    for arguments in [
        ["--alignment", "1TiB"],
        ["--budget", "63"],
        ["--budget", "1"],
    ] {
        let all = [
            &["-", "--policy", "coop", "--pool", "arena"][..],
            &arguments[..],
        ]
        .concat();
        let (out, err, code) = answer(simulate(&all).write_stdin(LOG));
        assert_eq!((err.as_str(), code), ("", Some(0)), "{all:?}");
        assert!(out.contains("oom") && !out.contains(" ok "), "{out}");
    }
}

/// Blocks that are moved need not be evicted; copies take their time.
#[test]
fn blocks_in_the_way_are_moved_if_that_is_asked_for() {
    let gpt = trace("gpt.trace.zst");
    let run = |more: &[&str]| {
        let all = ["--policy=coop", "--pool=arena", "--ratio=0.5", "--json"];
        let all = [&[gpt.to_str().unwrap()], &all[..], more].concat();
        let (out, err, code) = answer(&mut simulate(&all));
        assert_eq!((err.as_str(), code), ("", Some(0)));
        let line: Value = serde_json::from_str(&out).unwrap();
        ["clock", "remat_cost", "base_cost", "moved_bytes"].map(|key| line[key].as_u64().unwrap())
    };
    let [clock, again, base, moved] = run(&[]);
    assert_eq!((clock, moved), (1 + base + again, 0));
    let [clock, again, base, moved] = run(&["--moves=10GB"]);
    assert!(moved > 0);
    assert_eq!(clock, 1 + base + again + moved / 10);
    for (rate, words) in [
        ("999kB", "1MB a second or more"),
        ("9223372036854775807", "4294967295MB a second or less"),
        ("fast", "fast"),
    ] {
        let (out, err, code) = answer(&mut simulate(&["-", "--moves", rate]));
        assert_eq!((out.as_str(), code), ("", Some(2)));
        assert!(err.contains(words), "{err}");
    }
}

/// The same plan in every budget: a run fits if its peak does.
#[test]
fn selective_recomputation_is_a_policy_of_steps_with_attention() {
    let gpt = trace("gpt.trace.zst");
    let run = |arguments: &[&str]| {
        let all = [
            &[gpt.to_str().unwrap(), "--policy=sar", "--json"],
            arguments,
        ]
        .concat();
        let (out, err, code) = answer(&mut simulate(&all));
        assert_eq!((err.as_str(), code), ("", Some(0)));
        let lines = out.lines().map(|line| serde_json::from_str(line).unwrap());
        lines.collect::<Vec<Value>>()
    };
    let lines = run(&["--pool=arena", "--ratio=0.5,0.8,1.0"]);
    let statuses: Vec<_> = lines
        .iter()
        .map(|line| line["status"].as_str().unwrap())
        .collect();
    assert_eq!(statuses, ["oom", "ok", "ok"]);
    assert_eq!(lines[1]["peak_bytes"], lines[2]["peak_bytes"]);
    assert_eq!(lines[1]["overhead"], lines[2]["overhead"]);
    assert_eq!(
        (&lines[1]["policy"], &lines[1]["cutoff_budget"]),
        (&"sar".into(), &Value::Null)
    );
    assert_eq!(
        (&lines[1]["searches"], &lines[1]["shortages"]),
        (&0.into(), &0.into())
    );
    let peak = lines[1]["peak_bytes"].as_u64().unwrap();
    assert!(lines[1]["min_budget"].as_u64().unwrap() >= peak);
    let budgets = format!("--budget={},{peak}", peak - 1);
    let counted = run(&[budgets.as_str()]);
    assert_eq!(
        (&counted[0]["status"], &counted[1]["status"]),
        (&"oom".into(), &"ok".into())
    );

    let unet = trace("unet.trace.zst");
    let name = unet.to_str().unwrap();
    for (arguments, words, code) in [
        (
            &[name, "--policy=sar"][..],
            "no softmax between two matrix products",
            1,
        ),
        (
            &["-", "--policy=lru,sar"],
            "ops are not called as in PyTorch",
            1,
        ),
        (
            &["-", "--policy=sar", "--dealloc=banish"],
            "leave it at eager",
            2,
        ),
    ] {
        for command in ["simulate", "min-budget"] {
            let mut command = remat(command, arguments);
            let (out, err, told) = answer(command.write_stdin(LOG));
            assert_eq!(
                (out.as_str(), told, err.lines().count()),
                ("", Some(code), 1),
                "{err}"
            );
            assert!(err.contains(words), "{err}");
        }
    }
}

#[test]
fn the_smallest_budget_is_found_by_bisection() {
    let find = |arguments: &[&str]| {
        let mut command = assert_cmd::cargo::cargo_bin_cmd!("remat");
        let all = [&["min-budget", "-", "--json", "--within=1"], arguments].concat();
        let (out, err, code) = answer(command.args(all).write_stdin(LOG));
        assert_eq!((err.as_str(), code), ("", Some(0)));
        serde_json::from_str::<Value>(&out).unwrap()
    };
    // The constant and one result at a time; in an arena each takes two units of 64 bytes.
    let counted = find(&["--policy=lru"]);
    assert_eq!(
        (&counted["min_budget"], &counted["unmet"]),
        (&200.into(), &199.into())
    );
    let placed = find(&["--policy=coop", "--pool=arena"]);
    assert_eq!(
        (&placed["min_budget"], &placed["unmet"]),
        (&256.into(), &255.into())
    );
    let none = find(&["--policy=coop", "--pool=arena", "--alignment=1MiB"]);
    assert_eq!(
        (&none["min_budget"], &none["unmet"]),
        (&Value::Null, &1200.into())
    );
}

#[test]
fn budgets_are_byte_counts() {
    let mut command = simulate(&["-", "--policy", "lru", "--budget", "0.2KB,1k", "--json"]);
    let (out, _, code) = answer(command.write_stdin(LOG));
    assert_eq!(code, Some(0));
    let budgets: Vec<Value> = out
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .map(|line| serde_json::json!([line["ratio"], line["budget_bytes"], line["status"]]))
        .collect();
    assert_eq!(budgets[0], serde_json::json!([null, 200, "ok"]));
    assert_eq!(budgets[1], serde_json::json!([null, 1024, "ok"]));
}

#[test]
fn results_and_their_order_do_not_depend_on_jobs() {
    let (gan, unet) = (trace("gan.trace.zst"), trace("unet.trace.zst"));
    let all = |jobs| {
        let arguments = [
            gan.to_str().unwrap(),
            unet.to_str().unwrap(),
            "--policy=random,dtr-eq",
            "--ratio=0.4,0.9",
            "--seed=7",
            "--json",
            "--jobs",
            jobs,
        ];
        let (out, _, code) = answer(&mut simulate(&arguments));
        assert_eq!(code, Some(0));
        let timeless = |line| {
            let mut value: Value = serde_json::from_str(line).unwrap();
            value.as_object_mut().unwrap().remove("wall_seconds");
            value
        };
        out.lines().map(timeless).collect::<Vec<_>>()
    };
    let one = all("1");
    assert_eq!(one.len(), 8);
    assert_eq!(one, all("5"));
}

#[test]
fn wrong_arguments_are_told_with_the_value_and_the_way_out() {
    for (arguments, told) in [
        (
            ["--policy", "lru,belady"],
            "unknown policy 'belady'; known are dtr,",
        ),
        (
            ["--ratio", "0.5,none"],
            "invalid value 'none' for '--ratio <R>': a ratio is a number above 0, at most 1000, for example 0.5",
        ),
        (["--ratio", "-1"], "a ratio is a number above 0"),
        (
            ["--ratio", "1e308"],
            "invalid value '1e308' for '--ratio <R>': a ratio is a number above 0, at most 1000",
        ),
        (
            ["--budget", "6 potatoes"],
            "the unit \"potatoes\" is unknown; write for example 6GiB",
        ),
        (
            ["--budget", "-1%"],
            "invalid value '-1%' for '--budget <BYTES>': \"-1%\" is not a byte count: it is negative; write for",
        ),
        (
            ["--seed", "1.5"],
            "invalid value '1.5' for '--seed <N>': a whole number from 0 to",
        ),
        (
            ["--thrash-limit", "nan"],
            "the limit is a number above 0, for example 1.0",
        ),
        (
            ["--jobs", "0"],
            "invalid value '0' for '--jobs <N>': at least 1 run at a time is needed, for example 4",
        ),
        (
            ["--dealloc", "never"],
            "[possible values: eager, banish, ignore]",
        ),
    ] {
        let mut all = vec!["-"];
        all.extend(arguments);
        let (out, err, code) = answer(simulate(&all).write_stdin(LOG));
        assert_eq!((out.as_str(), code), ("", Some(2)), "{arguments:?}");
        assert!(err.contains(told), "{arguments:?}: {err}");
    }
}

#[test]
fn ratios_and_budgets_exclude_one_another() {
    let (_, err, code) = answer(&mut simulate(&["-", "--ratio", "0.5", "--budget", "1g"]));
    assert_eq!(code, Some(2));
    assert!(err.contains("cannot be used with"), "{err}");
}

#[test]
fn a_faulty_log_is_told_with_its_line() {
    let cut = &LOG[..LOG.len() - 20];
    let (out, err, code) = answer(simulate(&["-"]).write_stdin(cut));
    assert_eq!((out.as_str(), code), ("", Some(1)));
    assert!(err.starts_with("remat: <stdin>:10: "), "{err}");
    assert_eq!(err.lines().count(), 1);
}
