//! Ctrl-C in the middle of `remat simulate` and `remat figures`: prompt, by the signal, nothing broken left. In the
//! middle of `remat plan step` it ends the search, and the best plan so far is told.
//!
//! A shell starts what it runs in the background with interrupts ignored, and its children inherit that. The programs
//! under test are therefore started with the default (coreutils' `env --default-signal`).

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

const SIGINT: i32 = 2;

/// Minutes of work, whatever the machine.
fn long(command: &str) -> Vec<String> {
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces/treelstm.trace.zst");
    let trace = trace.display().to_string();
    let ratios = (200..1000).map(|part| format!("0.{part}"));
    let ratios = ratios.collect::<Vec<_>>().join(",");
    let rest = match command {
        "simulate" => vec![trace],
        _ => vec!["--from".into(), trace],
    };
    [format!("--ratio={ratios}"), "--jobs=2".into()]
        .into_iter()
        .chain(rest)
        .collect()
}

/// Runs a command on a terminal of its own (util-linux's `script`) and presses Ctrl-C once the progress is there. Exit
/// code and output of the terminal.
fn interrupted_on_terminal(arguments: &[String]) -> (Option<i32>, String) {
    let quoted = arguments.iter().map(|argument| format!("'{argument}'"));
    let line = format!(
        "exec env --default-signal=INT '{}' {}",
        assert_cmd::cargo::cargo_bin!("remat").display(),
        quoted.collect::<Vec<_>>().join(" ")
    );
    let mut terminal = Command::new("script")
        .args(["-qfec", &line, "/dev/null"])
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("util-linux's script");
    let mut keys = terminal.stdin.take().unwrap();
    let mut screen = terminal.stdout.take().unwrap();
    let (mut shown, mut pressed) = (Vec::new(), false);
    let mut part = [0; 4096];
    while let Ok(count @ 1..) = screen.read(&mut part) {
        shown.extend_from_slice(&part[..count]);
        if !pressed && String::from_utf8_lossy(&shown).contains(" left") {
            keys.write_all(b"\x03").unwrap();
            keys.flush().unwrap();
            pressed = true;
        }
    }
    let code = terminal.wait().unwrap().code();
    (code, String::from_utf8_lossy(&shown).into_owned())
}

/// The last line of a terminal that got this.
fn last_line(shown: &str) -> &str {
    let line = shown.rsplit('\n').next().unwrap_or(shown);
    let cleared = line.rsplit("\u{1b}[2K").next().unwrap_or(line);
    cleared.trim_matches(['\r', ' '])
}

#[test]
fn ctrl_c_clears_the_progress_of_simulate() {
    let mut arguments = vec!["simulate".to_owned()];
    arguments.extend(long("simulate"));
    let (code, shown) = interrupted_on_terminal(&arguments);
    assert_eq!(code, Some(128 + SIGINT), "{shown}");
    assert!(shown.contains(" left"), "{shown}");
    assert_eq!(last_line(&shown), "", "{shown}");
}

#[test]
fn ctrl_c_clears_the_progress_of_figures_and_leaves_earlier_ones() {
    let out = tempfile::tempdir().unwrap();
    fs::write(out.path().join("overhead.svg"), "earlier").unwrap();
    let mut arguments = vec!["figures".to_owned(), out.path().display().to_string()];
    arguments.extend(long("figures"));
    let (code, shown) = interrupted_on_terminal(&arguments);
    assert_eq!(code, Some(128 + SIGINT), "{shown}");
    assert_eq!(last_line(&shown), "", "{shown}");
    let names = fs::read_dir(out.path()).unwrap();
    let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["overhead.svg"]);
    let text = fs::read_to_string(out.path().join("overhead.svg")).unwrap();
    assert_eq!(text, "earlier");
}

#[test]
fn ctrl_c_clears_the_progress_of_chains_and_leaves_earlier_figures() {
    let folder = tempfile::tempdir().unwrap();
    let stage =
        r#"{"forward_time":1,"backward_time":2,"activation_bytes":1000,"saved_bytes":4100}"#;
    let stages = [stage; 140].join(",");
    let chain = folder.path().join("net.json");
    fs::write(
        &chain,
        format!(r#"{{"input_bytes":1000,"stages":[{stages}]}}"#),
    )
    .unwrap();
    let out = folder.path().join("out");
    fs::create_dir(&out).unwrap();
    fs::write(out.join("chains.svg"), "earlier").unwrap();
    let arguments = [
        "figures".to_owned(),
        out.display().to_string(),
        "--strategy=floating".to_owned(),
        "--from".to_owned(),
        chain.display().to_string(),
    ];
    let (code, shown) = interrupted_on_terminal(&arguments);
    assert_eq!(code, Some(128 + SIGINT), "{shown}");
    assert_eq!(last_line(&shown), "", "{shown}");
    assert_eq!(fs::read_dir(&out).unwrap().count(), 1);
    assert_eq!(
        fs::read_to_string(out.join("chains.svg")).unwrap(),
        "earlier"
    );
}

#[test]
fn ctrl_c_ends_the_search_of_a_step_with_the_best_plan_so_far() {
    let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces");
    let trace = traces.join("gpt.trace.zst").display().to_string();
    let arguments = [
        "plan",
        "step",
        &trace,
        "--ratio=0.5,0.4",
        "--seconds=100000",
    ];
    let (code, shown) = interrupted_on_terminal(&arguments.map(str::to_owned));
    assert_eq!(code, Some(0), "{shown}");
    let told = shown.rsplit("\u{1b}[2K").next().unwrap_or(&shown);
    assert!(
        told.contains("overhead") && told.contains("best online"),
        "{shown}"
    );
    assert!(
        told.contains("1 smaller budgets were not searched"),
        "{shown}"
    );
}

/// A long `remat simulate`, begun by a shell that does this first, and the first line that it tells.
fn telling(first: &str) -> (Child, BufReader<ChildStdout>, String) {
    let mut child = Command::new("env")
        .args(["--default-signal=INT", "sh", "-c"])
        .arg(format!("{first} exec \"$0\" \"$@\""))
        .arg(assert_cmd::cargo::cargo_bin!("remat"))
        .args(["simulate", "--json"])
        .args(long("simulate"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut told = String::new();
    lines.read_line(&mut told).unwrap();
    (child, lines, told)
}

fn interrupt(child: &Child) {
    let kill = format!("kill -INT {}", child.id());
    let sent = Command::new("sh").args(["-c", &kill]).status();
    assert!(sent.unwrap().success());
}

#[test]
fn an_interrupted_simulate_dies_of_the_signal_and_has_told_whole_lines() {
    let (child, mut lines, mut told) = telling("");
    interrupt(&child);
    lines.read_to_string(&mut told).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.signal(), Some(SIGINT));
    assert_eq!(String::from_utf8_lossy(&ended.stderr), "");
    assert!(told.ends_with("}\n"), "{told}");
}

#[test]
fn a_signal_that_was_ignored_stays_ignored() {
    let (mut child, mut lines, _) = telling("trap '' INT;");
    interrupt(&child);
    for _ in 0..3 {
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        assert!(line.ends_with("}\n"), "{line}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
}
