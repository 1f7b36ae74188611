//! `remat figures` as it is called from a shell: every file announced is there, can be read, and holds what was
//! simulated.

use assert_cmd::Command;
use remat_core::{Bytes, Dealloc, Policy};
use remat_sim::{Budget, Outcome, Program, Setting, adversary, linear};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt::Write;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const SHEETS: [&str; 16] = [
    "overhead",
    "planned",
    "ablation-exact",
    "ablation-eq",
    "ablation-local",
    "ablation-no",
    "deallocation",
    "accesses",
    "evaluations",
    "arena-overhead",
    "arena-latency",
    "arena-fragmentation",
    "linear-policies",
    "linear-budgets",
    "residency",
    "adversary",
];

/// A constant and 24 results in a row, which are read again from the last to the first.
fn log() -> String {
    let mut text = String::from(
        r#"{"INSTRUCTION":"ANNOTATE","ANNOTATION":"START"}
{"INSTRUCTION":"CONSTANT","NAME":"x0"}
{"INSTRUCTION":"MEMORY","NAME":"x0","MEMORY":"40"}
"#,
    );
    let call = |text: &mut String, result: &str, args: &[String], bytes: u32, time: u32| {
        let args = args.join("\",\"");
        let _ = writeln!(
            text,
            r#"{{"INSTRUCTION":"CALL","NAME":"f","ARGS":["{args}"],"RESULT":["{result}"],"TIME":"{time}"}}
{{"INSTRUCTION":"MEMORY","NAME":"{result}","MEMORY":"{bytes}"}}
{{"INSTRUCTION":"ALIAS","NAME":"{result}","ALIAS":"-1"}}"#
        );
    };
    for layer in 1..=24u32 {
        let below = format!("x{}", layer - 1);
        call(
            &mut text,
            &format!("x{layer}"),
            &[below],
            60 + layer % 5 * 20,
            10 + layer % 3,
        );
    }
    for layer in (0..24).rev() {
        let above = match layer {
            23 => "x24".to_owned(),
            _ => format!("g{}", layer + 1),
        };
        let gone = [format!("x{layer}"), above];
        call(&mut text, &format!("g{layer}"), &gone, 50, 20);
        for name in gone {
            let _ = writeln!(text, r#"{{"INSTRUCTION":"RELEASE","NAME":"{name}"}}"#);
        }
    }
    text
}

fn figures(out: &Path, arguments: &[&str]) -> (String, String, Option<i32>) {
    // Of its processor time, so that other work on the machine does not count: 60 s.
    let limited = "ulimit -t 60 && exec \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    command
        .args(["-c", limited])
        .arg(assert_cmd::cargo::cargo_bin!("remat"));
    let output = command.arg("figures").arg(out).args(arguments).output();
    let output = output.unwrap();
    let utf8 = |bytes| String::from_utf8(bytes).unwrap();
    (
        utf8(output.stdout),
        utf8(output.stderr),
        output.status.code(),
    )
}

/// The rows of a table without quotes, each by column.
fn rows(path: &Path) -> Vec<HashMap<String, String>> {
    let text = fs::read_to_string(path).unwrap();
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().unwrap().split(',').collect();
    let row = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        assert_eq!(cells.len(), names.len(), "{line}");
        let named = names.iter().zip(cells);
        named
            .map(|(name, cell)| ((*name).to_owned(), cell.to_owned()))
            .collect()
    };
    lines.map(row).collect()
}

fn number(row: &HashMap<String, String>, column: &str) -> u64 {
    row[column].parse().unwrap()
}

fn dealloc(name: &str) -> Dealloc {
    match name {
        "eager" => Dealloc::Eager,
        "banish" => Dealloc::Banish,
        "ignore" => Dealloc::Ignore,
        other => panic!("{other}"),
    }
}

/// Every row is the run that it names.
fn check_runs(path: &Path, program: &Program, expected_rows: usize) {
    let base = program.base().unwrap();
    let rows = rows(path);
    assert_eq!(rows.len(), expected_rows, "{}", path.display());
    for row in &rows {
        let setting = Setting {
            policy: row["policy"].parse().unwrap(),
            dealloc: dealloc(&row["dealloc"]),
            budget: Budget::Ratio(row["ratio"].parse().unwrap()),
            thrash_limit: 1.0,
            seed: 0,
            ..Setting::default()
        };
        let Outcome {
            status,
            budget,
            clock,
            peak,
            counters,
            ..
        } = program.run(&base, &setting).unwrap();
        assert_eq!(row["status"], status.to_string(), "{row:?}");
        for (column, value) in [
            ("budget_bytes", budget.0),
            ("clock_ns", clock),
            ("peak_bytes", peak.0),
            ("remat_cost_ns", counters.replayed_cost.0),
            ("evictions", counters.evictions),
            ("score_evaluations", counters.score_evaluations),
            ("metadata_accesses", counters.metadata_accesses),
            ("base_memory_bytes", base.memory.0),
        ] {
            assert_eq!(number(row, column), value, "{column}: {row:?}");
        }
    }
}

/// The text of an SVG: it is well-formed, names the axes, and draws its lines and marks within its edges.
fn check_picture(out: &Path, sheet: &str, words: &[&str]) {
    let svg = fs::read_to_string(out.join(format!("{sheet}.svg"))).unwrap();
    let parsed =
        roxmltree::Document::parse(&svg).unwrap_or_else(|fault| panic!("{sheet}: {fault}"));
    let root = parsed.root_element();
    assert!(root.attribute("width").unwrap().parse::<f64>().unwrap() >= 900.0);
    for part in root.descendants() {
        for attribute in part.attributes() {
            let drawn = attribute.value();
            assert!(
                !drawn.contains("NaN") && !drawn.contains("Infinity"),
                "{sheet}: {drawn}"
            );
        }
    }
    let texts: Vec<&str> = root.descendants().filter_map(|part| part.text()).collect();
    let unseen = root.descendants().filter(|part| {
        let zero = ["opacity", "fill-opacity"].map(|name| part.attribute(name) == Some("0"));
        part.has_tag_name("text") && zero.contains(&true)
    });
    assert_eq!(unseen.count(), 0, "{sheet}: text that cannot be seen");
    for word in words {
        assert!(
            texts.contains(word),
            "{sheet} does not say {word}: {texts:?}"
        );
    }
    let paths = root.descendants().filter(|part| part.has_tag_name("path"));
    assert!(paths.count() > 30, "{sheet} is empty");
}

/// The page refers to nothing outside itself, and its figures are the CSV files beside it, byte for byte.
fn check_page(out: &Path, sheets: &[&str]) -> String {
    let page = fs::read_to_string(out.join("index.html")).unwrap();
    for outward in [
        "src=",
        "href=\"",
        "@import",
        "url(",
        "fetch(",
        "XMLHttpRequest",
        "import(",
    ] {
        let own = page.matches(outward).count() - library().matches(outward).count();
        let allowed = usize::from(outward == "href=\"");
        assert_eq!(own, allowed, "{outward}");
    }
    assert!(page.contains("<link rel=\"icon\" href=\"data:,\">"));
    let (_, rest) = page.split_once("id=\"figures\">").unwrap();
    let (json, _) = rest.split_once("</script>").unwrap();
    let figures: Vec<serde_json::Value> = serde_json::from_str(json).unwrap();
    let names: Vec<&str> = figures
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, sheets);
    for figure in &figures {
        let name = figure["name"].as_str().unwrap();
        let csv = fs::read_to_string(out.join(format!("{name}.csv"))).unwrap();
        assert_eq!(figure["csv"].as_str().unwrap(), csv, "{name}");
    }
    page
}

/// The chart library as it stands in the page.
fn library() -> String {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../remat-figures/vendor/echarts.min.js"
    );
    fs::read_to_string(path).unwrap()
}

/// Plans lie between the bound and the policies, for ratios of 0.9, 0.5 and 0.1, of which the last has none.
fn check_plans(rows: &[HashMap<String, String>]) {
    let of = |policy: &str, ratio: &str| {
        let mut found = rows
            .iter()
            .filter(|row| row["policy"] == policy && row["ratio"] == ratio);
        let row = found.next();
        assert!(found.next().is_none());
        row
    };
    let overhead = |row: &HashMap<String, String>| row["overhead"].parse::<f64>().unwrap();
    let mut recomputed = 0;
    for ratio in ["0.9", "0.5"] {
        let plan = of("plan", ratio).unwrap();
        assert_eq!(plan["status"], "ok");
        assert!(number(plan, "peak_bytes") <= number(plan, "budget_bytes"));
        recomputed += number(plan, "remat_cost_ns");
        let bound = overhead(of("bound", ratio).unwrap());
        assert!(1.0 <= bound && bound <= overhead(plan), "{ratio}");
        for policy in ["dtr", "dtr-eq", "dtr-anc"] {
            let online = of(policy, ratio).unwrap();
            let beaten = online["status"] != "ok" || overhead(plan) <= overhead(online);
            assert!(beaten, "{policy} {ratio}");
        }
    }
    assert!(recomputed > 0);
    let none = of("plan", "0.1").unwrap();
    assert_eq!(
        (none["status"].as_str(), none["overhead"].as_str()),
        ("oom", "")
    );
    assert!(of("bound", "0.1").is_none());
    assert_eq!(rows.len(), 4 * 3 + 3 + 2);
}

#[test]
fn every_file_is_there_and_holds_what_was_simulated() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a<b&c.log");
    fs::write(&path, log()).unwrap();
    let out = folder.path().join("deep/out");
    let arguments = [
        "--ratio=0.9,0.1,0.5",
        "--jobs=2",
        "--from",
        path.to_str().unwrap(),
    ];
    let (told, err, code) = figures(&out, &arguments);
    assert_eq!((err.as_str(), code), ("", Some(0)));
    assert_eq!(told, format!("{}\n", out.join("index.html").display()));

    let mut names: Vec<String> = fs::read_dir(&out)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let mut expected: Vec<String> = SHEETS
        .iter()
        .flat_map(|sheet| ["svg", "csv"].map(|ending| format!("{sheet}.{ending}")))
        .collect();
    expected.push("index.html".into());
    names.sort();
    expected.sort();
    assert_eq!(names, expected);

    let page = check_page(&out, &SHEETS);
    assert!(page.contains("a\\u003cb&c.log") && !page.contains("a<b"));
    let ratio = "memory ratio (budget / peak without a limit)";
    check_picture(
        &out,
        "overhead",
        &[
            "a<b&c",
            ratio,
            "overhead (×)",
            "dtr-eq",
            "budget cannot be met",
            "constants",
        ],
    );
    check_picture(
        &out,
        "deallocation",
        &["dtr, banishing", "dtr-eq, ignoring"],
    );
    check_picture(&out, "accesses", &["metadata accesses"]);
    check_picture(&out, "arena-latency", &["search latency (ns)", "coop"]);
    check_picture(
        &out,
        "linear-budgets",
        &["layers N", "B = 2⌈√N⌉", "Treeverse, B - 2 checkpoints"],
    );
    check_picture(
        &out,
        "residency",
        &["ops performed", "layer", "gradient of the layer in memory"],
    );
    check_picture(
        &out,
        "adversary",
        &["ops by budget", "N²/(2B)", "ablations"],
    );
    check_picture(&out, "planned", &["plan", "bound", "lru", "overhead (×)"]);
    SHEETS
        .iter()
        .for_each(|sheet| check_picture(&out, sheet, &[]));
    check_plans(&rows(&out.join("planned.csv")));

    let program = Program::open(&path).unwrap();
    for (sheet, ways) in [
        ("overhead", 8),
        ("ablation-exact", 4),
        ("ablation-eq", 4),
        ("ablation-local", 4),
        ("ablation-no", 4),
        ("deallocation", 6),
        ("accesses", 8),
        ("evaluations", 8),
    ] {
        check_runs(&out.join(format!("{sheet}.csv")), &program, ways * 3);
    }
    let overhead = rows(&out.join("overhead.csv"));
    for status in ["ok", "oom"] {
        assert!(overhead.iter().any(|row| row["status"] == status));
    }
    check_arenas(&out);
    check_theorems(&out);
}

/// Three figures of the same runs: each policy at each ratio, with what only arenas have.
fn check_arenas(out: &Path) {
    let fragmentation = rows(&out.join("arena-fragmentation.csv"));
    assert_eq!(fragmentation.len(), 5 * 3);
    for row in &fragmentation {
        let part = |column: &str| row[column].parse::<f64>().unwrap();
        assert!(part("fragmentation_mean") <= part("fragmentation_max"));
        assert!(number(row, "unused_evicted_bytes") <= number(row, "evicted_bytes"));
        assert!(row["policy"] != "coop" || number(row, "searches") <= number(row, "shortages") + 1);
    }
    let pressed = fragmentation
        .iter()
        .filter(|row| number(row, "shortages") > 0);
    assert!(pressed.count() > 0);
    assert_eq!(rows(&out.join("arena-overhead.csv")).len(), 15);
    assert_eq!(rows(&out.join("arena-latency.csv")).len(), 15);
}

/// A sample of the rows, simulated again.
fn check_theorems(out: &Path) {
    for sheet in ["linear-policies", "linear-budgets"] {
        let rows = rows(&out.join(format!("{sheet}.csv")));
        for row in rows.iter().filter(|row| number(row, "layers") == 256) {
            let setting = Setting {
                policy: row["policy"].parse().unwrap(),
                dealloc: Dealloc::Banish,
                budget: Budget::Bytes(Bytes(number(row, "budget_tensors"))),
                thrash_limit: 20.0,
                seed: 0,
                ..Setting::default()
            };
            let (program, base) = (linear::program(256), linear::base(256));
            let outcome = program.run(&base, &setting).unwrap();
            assert_eq!(row["status"], outcome.status.to_string());
            assert_eq!(number(row, "ops"), outcome.clock - 1, "{row:?}");
        }
    }
    let duels = rows(&out.join("adversary.csv"));
    assert_eq!(duels.len(), 24 * 11);
    for row in duels.iter().filter(|row| number(row, "nodes") == 128) {
        let policy: Policy = row["policy"].parse().unwrap();
        let forced = adversary::run(policy, 128, number(row, "budget_tensors") as u32).unwrap();
        assert_eq!(number(row, "ops"), forced.ops);
        assert!(forced.ops as f64 >= row["bound_ops"].parse::<f64>().unwrap());
    }
    let picture = linear::Picture::take(200, Bytes(30), Policy::E_STAR).unwrap();
    let columns = rows(&out.join("residency.csv")).len();
    assert_eq!(columns, picture.unwrap().columns.len());
}

/// A step of one constant has neither a peak to fall below nor ops; a single budget makes a single point a line.
#[test]
fn a_step_without_ops_and_a_single_budget_are_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let lines: Vec<String> = log().lines().take(3).map(String::from).collect();
    let out = folder.path().join("out");
    let mut command = assert_cmd::cargo::cargo_bin_cmd!("remat");
    command.arg("figures").arg(&out);
    command.args(["--ratio=1", "--from", "-"]);
    let output = command.write_stdin(lines.join("\n") + "\n").output();
    let output = output.unwrap();
    assert!(output.status.success());
    // A plan needs the step twice.
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(told.contains("-: no plan is drawn"), "{told}");
    for sheet in SHEETS {
        check_picture(&out, sheet, &[]);
    }
    assert_eq!(rows(&out.join("overhead.csv")).len(), 8);
    let beside = rows(&out.join("planned.csv"));
    assert!(beside.len() == 4 && beside.iter().all(|row| row["policy"] != "plan"));
}

#[test]
fn a_log_is_planned_whatever_bytes_its_name_has() {
    let folder = tempfile::tempdir().unwrap();
    let name = OsStr::from_bytes(b"step\xff.log");
    fs::write(folder.path().join(name), log()).unwrap();
    let mut command = assert_cmd::cargo::cargo_bin_cmd!("remat");
    command.current_dir(folder.path());
    command.args(["figures", "out", "--ratio=1", "--plan-rounds=1", "--from"]);
    let output = command.arg(name).output().unwrap();
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    assert!(output.status.success());
    let planned = rows(&folder.path().join("out/planned.csv"));
    assert!(planned.iter().any(|row| row["policy"] == "plan"));
}

#[test]
fn faults_are_told_in_one_line_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "not a log\n").unwrap();
    let name = file.to_str().unwrap();

    let whole = folder.path().join("whole.log");
    fs::write(&whole, log()).unwrap();
    let (out, err, code) = figures(&file, &["--from", whole.to_str().unwrap()]);
    assert_eq!((out.as_str(), code), ("", Some(1)));
    assert!(err.contains(name) && err.contains("name a folder"), "{err}");
    assert_eq!(err.lines().count(), 1);

    let there = folder.path().join("out");
    let (out, err, code) = figures(&there, &["--from", name]);
    assert_eq!((out.as_str(), code), ("", Some(1)));
    assert!(err.starts_with(&format!("remat: {name}:1: ")), "{err}");
    assert_eq!(err.lines().count(), 1);
    assert!(!there.exists());

    let (_, err, code) = figures(&there, &[]);
    assert_eq!(code, Some(2));
    assert!(err.contains("--from <FILE>..."), "{err}");

    let broken = folder.path().join("net.json");
    fs::write(&broken, "{\"input_bytes\": 4, \"stages\": []}").unwrap();
    let (out, err, code) = figures(&there, &["--from", broken.to_str().unwrap()]);
    assert_eq!((out.as_str(), code), ("", Some(1)));
    assert!(err.contains("net.json: the chain has no stages"), "{err}");
    fs::write(&broken, "{\"input\": 4}").unwrap();
    let (_, err, code) = figures(&there, &["--from", broken.to_str().unwrap()]);
    assert_eq!((err.lines().count(), code), (1, Some(1)));
    assert!(err.contains("a chain would begin with"), "{err}");
    assert!(!there.exists());
    let (_, _, code) = figures(&there, &["--growth=0"]);
    assert_eq!(code, Some(2));
}

/// A chain of so many stages of three sizes.
fn chain(stages: usize) -> String {
    let stage = |l: usize| {
        let (bytes, time) = (1000 * (1 + l % 3), 1 + l % 2);
        let (saved, backward) = (bytes * 4, time * 2);
        format!(
            r#"{{"forward_time":{time},"backward_time":{backward},"activation_bytes":{bytes},"saved_bytes":{saved}}}"#
        )
    };
    let stages: Vec<String> = (1..=stages).map(stage).collect();
    format!(r#"{{"input_bytes":1000,"stages":[{}]}}"#, stages.join(","))
}

/// Every point of a chain's curve is a plan that can be had, and every strategy has its smallest budget or a reason.
#[test]
fn chains_are_told_from_logs_and_drawn_by_strategy() {
    let folder = tempfile::tempdir().unwrap();
    let (short, long) = (folder.path().join("short.txt"), folder.path().join("long"));
    fs::write(&short, chain(12)).unwrap();
    fs::write(&long, chain(500)).unwrap();
    let out = folder.path().join("out");
    let (short, long) = (short.to_str().unwrap(), long.to_str().unwrap());
    let (told, err, code) = figures(&out, &["--from", short, long]);
    assert_eq!(code, Some(0), "{err}");
    assert_eq!(told, format!("{}\n", out.join("index.html").display()));
    let left: Vec<&str> = err.lines().collect();
    assert_eq!(left.len(), 4, "{err}");
    for (line, strategy) in left
        .iter()
        .zip(["persistent", "floating", "free", "revolve"])
    {
        let begin = format!("remat: {long}: {strategy} is left out: 500 stages");
        assert!(line.starts_with(&begin), "{line}");
    }
    let words = [
        "short.txt (12 stages)",
        "long (500 stages)",
        "smallest feasible budget",
        "left out",
        "peak memory (KiB)",
    ];
    check_picture(&out, "chains", &words);
    assert!(!out.join("overhead.svg").exists());
    assert!(check_page(&out, &["chains"]).contains("left out: 500 stages"));
    check_curves(&out, short, long);
}

fn check_curves(out: &Path, short: &str, long: &str) {
    use remat_plan::chain::{Chain, Resolution, Strategy, plan};
    let parsed: Chain = chain(12).parse().unwrap();
    let go_on = &mut |_| std::ops::ControlFlow::Continue(());
    let rows = rows(&out.join("chains.csv"));
    for strategy in Strategy::ALL {
        let name = strategy.to_string();
        let of = |path: &str| {
            let mine =
                |row: &&HashMap<String, String>| row["chain"] == path && row["strategy"] == name;
            rows.iter().filter(mine).collect::<Vec<_>>()
        };
        let points = of(short);
        assert!(!points.is_empty(), "{name}");
        assert_eq!(points[0]["budget_bytes"], points[0]["smallest_bytes"]);
        let smallest = number(points[0], "smallest_bytes");
        let mut ask = |bytes| plan(&parsed, bytes, strategy, Resolution::Exact, go_on);
        assert!(ask(smallest - 1).is_err(), "{name} fits in less");
        for row in &points {
            let best = ask(number(row, "budget_bytes")).unwrap().makespan;
            let drawn: f64 = row["makespan"].parse().unwrap();
            let throughput: f64 = row["throughput"].parse().unwrap();
            assert!(
                drawn >= best - 1e-9,
                "{name}: {drawn} is better than {best}"
            );
            assert!((throughput * drawn - parsed.unconstrained_time()).abs() < 1e-6);
        }
        let table = ["persistent", "floating", "free", "revolve"].contains(&name.as_str());
        let status = if table { "left out: 500 stages" } else { "ok" };
        assert!(
            of(long).iter().all(|row| row["status"].starts_with(status)),
            "{name}"
        );
        assert!(!of(long).is_empty(), "{name}");
    }
}

#[test]
fn a_strategy_that_is_named_is_planned_whatever_the_length() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("net.json");
    fs::write(&path, chain(73)).unwrap();
    let arguments = ["--strategy=floating,none", "--from", path.to_str().unwrap()];
    let (_, err, code) = figures(folder.path(), &arguments);
    assert_eq!((err.as_str(), code), ("", Some(0)));
    let rows = rows(&folder.path().join("chains.csv"));
    assert!(rows.iter().all(|row| row["status"] == "ok"));
    assert_eq!(
        rows.iter().filter(|row| row["strategy"] == "none").count(),
        1
    );
    assert!(rows.len() > 10);
}

#[test]
fn growth_is_timed_within_its_limit_and_says_where_it_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let (told, err, code) = figures(folder.path(), &["--growth=1"]);
    assert_eq!(code, Some(0), "{err}");
    assert!(told.ends_with("index.html\n"));
    check_picture(folder.path(), "growth", &["stages L", "planning time (s)"]);
    check_page(folder.path(), &["growth"]);
    for (line, strategy) in err.lines().zip(["persistent", "floating"]) {
        assert!(
            line.starts_with(&format!("remat: {strategy} is timed up to ")),
            "{err}"
        );
        assert!(line.contains("--growth="), "{err}");
    }
    let rows = rows(&folder.path().join("growth.csv"));
    for strategy in ["persistent", "floating"] {
        let mine: Vec<_> = rows
            .iter()
            .filter(|row| row["strategy"] == strategy)
            .collect();
        assert!(mine.len() >= 3 && mine.len() % 3 == 0, "{strategy}");
        assert!(
            mine.iter()
                .all(|row| row["seconds"].parse::<f64>().unwrap() > 0.0)
        );
    }
}
