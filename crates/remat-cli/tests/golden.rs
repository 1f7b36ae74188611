//! Rows of `remat simulate` for the recorded steps, compared to the bit with those that were recorded before.
//!
//! Each case is a command line; its rows lie in `tests/golden/`. After a change that is meant to change decisions:
//! `REMAT_BLESS=1 cargo test -p remat-cli --test golden`.

use serde_json::{Map, Value};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Every recorded step but the long one, and two of them as DTR logs.
const LOGS: [&str; 7] = [
    "traces/gan.trace.zst",
    "traces/gpt.trace.zst",
    "traces/lstm.trace.zst",
    "traces/resnet.trace.zst",
    "traces/unet.trace.zst",
    "crates/remat-cli/tests/golden/gan.log.zst",
    "crates/remat-cli/tests/golden/lstm.log.zst",
];

/// Of every step the same; they head the step's rows.
const BASE: [&str; 4] = [
    "base_memory",
    "base_cost",
    "const_bytes",
    "bottleneck_bytes",
];

/// Times that the simulation itself took.
const CLOCKS: [&str; 2] = ["wall_seconds", "search_ns_mean"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The names of the policies that have a form of memory.
fn policies(pool: &str) -> String {
    let by_address = |name: &str| name.starts_with("coop") || name.starts_with("dte");
    let listed = assert_cmd::cargo::cargo_bin_cmd!("remat")
        .arg("policies")
        .output()
        .expect("the list of policies");
    let listed = String::from_utf8(listed.stdout).expect("UTF-8");
    let names = listed
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    // `sar` reads attention, which not every step has.
    let names = names.filter(|name| *name != "sar" && (pool == "arena") == by_address(name));
    names.collect::<Vec<_>>().join(",")
}

/// The rows that a command prints: a line of JSON for each step, one for each run.
fn rows(arguments: &[&str], logs: &[&str]) -> String {
    let output = assert_cmd::cargo::cargo_bin_cmd!("remat")
        .current_dir(root())
        .args(["simulate", "--json"])
        .args(arguments)
        .args(logs)
        .output()
        .expect("a simulation");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((said.as_str(), output.status.code()), ("", Some(0)));
    let (mut rows, mut last) = (String::new(), Value::Null);
    for line in String::from_utf8(output.stdout).expect("UTF-8").lines() {
        let mut row: Map<String, Value> = serde_json::from_str(line).expect("JSON");
        for name in CLOCKS {
            row.shift_remove(name);
        }
        assert_eq!(row.shift_remove("engine"), Some(Value::from("paper")));
        let mut base =
            Map::from_iter([("log".to_owned(), row.shift_remove("log").expect("a log"))]);
        base.extend(BASE.map(|name| (name.to_owned(), row.shift_remove(name).expect("a number"))));
        let base = Value::Object(base);
        if base != last {
            writeln!(rows, "{base}").expect("a string grows");
            last = base;
        }
        writeln!(rows, "{}", Value::Object(row)).expect("a string grows");
    }
    rows
}

/// Compares a command's rows with those recorded as `case`, or records them.
fn hold(case: &str, arguments: &[&str], logs: &[&str]) {
    let found = rows(arguments, logs);
    let path = root().join(format!("crates/remat-cli/tests/golden/{case}.jsonl"));
    if std::env::var_os("REMAT_BLESS").is_some() {
        std::fs::write(&path, found).expect("the golden file is written");
        return;
    }
    let expected = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let pairs = expected.lines().zip(found.lines());
    let differing: Vec<_> = pairs
        .filter(|(before, now)| before != now)
        .map(|(before, now)| format!("recorded {before}\nnow      {now}"))
        .collect();
    assert!(differing.is_empty(), "\n{}", differing.join("\n"));
    assert_eq!(found.lines().count(), expected.lines().count());
}

#[test]
fn every_policy_where_bytes_are_counted() {
    let policies = policies("fungible");
    hold(
        "policies",
        &["--policy", &policies, "--ratio", "0.4,0.6,0.8"],
        &LOGS,
    );
}

#[test]
fn selective_recomputation_of_attention() {
    let arguments = ["--policy", "sar", "--ratio", "0.5,0.8,1"];
    hold("selective", &arguments, &["traces/gpt.trace.zst"]);
}

#[test]
fn what_is_released_may_be_banished() {
    let policies = "dtr,dtr-eq,dtr-anc,dtr-local,lru,msps";
    let arguments = [
        "--policy",
        policies,
        "--dealloc",
        "banish",
        "--ratio",
        "0.4,0.7",
    ];
    hold("banish", &arguments, &LOGS);
}

#[test]
fn what_is_released_may_be_ignored() {
    let policies = "dtr,dtr-eq,dtr-anc,dtr-local,lru,msps";
    let arguments = [
        "--policy",
        policies,
        "--dealloc",
        "ignore",
        "--ratio",
        "0.4,0.7",
    ];
    hold("ignore", &arguments, &LOGS);
}

#[test]
fn a_limit_on_thrashing_and_a_seed() {
    let arguments = [
        "--policy",
        "random,dtr-eq",
        "--thrash-limit",
        "0.05",
        "--seed",
        "7",
        "--ratio",
        "0.4,0.7",
    ];
    hold("thrash", &arguments, &LOGS);
}

#[test]
fn every_policy_of_arenas() {
    let policies = policies("arena") + ",dtr-eq,dtr,lru,size";
    let arguments = [
        "--pool", "arena", "--policy", &policies, "--ratio", "0.5,0.8",
    ];
    hold("arena", &arguments, &LOGS);
}

#[test]
fn arenas_divided_by_cost_and_blocks_that_move() {
    let arguments = [
        "--pool",
        "arena",
        "--policy",
        "coop,coop-eq",
        "--ratio",
        "0.4,0.7",
    ];
    let with = |more: &[&'static str]| [&arguments[..], more].concat();
    hold(
        "arena-by-cost",
        &with(&["--ends", "cost", "--alignment", "512"]),
        &LOGS,
    );
    hold("arena-moves", &with(&["--moves", "10GB"]), &LOGS);
}

#[test]
fn arenas_without_modules_of_coop() {
    let arguments = ["--pool", "arena", "--policy", "coop", "--ratio", "0.5,0.8"];
    for module in ["window", "partition", "in-place"] {
        let arguments = [&arguments[..], &["--without", module]].concat();
        hold(&format!("arena-without-{module}"), &arguments, &LOGS);
    }
}

#[test]
fn a_long_step_of_many_small_tensors() {
    let log = ["traces/treelstm.trace.zst"];
    let policies = ["--policy", "dtr-eq,lru"];
    hold("long", &[&policies[..], &["--ratio", "0.8"]].concat(), &log);
    hold("long-scarce", &["--policy", "lru", "--ratio", "0.6"], &log);
}
