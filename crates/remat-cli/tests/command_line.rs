//! The commands as they are called from a shell: output, errors, exit codes.

use assert_cmd::Command;
use remat_trace::{Event, Format, open};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const TRACE: &str = r#"{"remat-trace":1,"created_by":"remat 0.1.0","pools":["cuda:0"],"about":{"model":"toy"}}
{"const":{"t":1,"b":4096}}
{"op":{"n":"mm","i":[1,1],"o":[{"t":2,"b":8192}],"w":1024,"c":1500000}}
{"op":{"n":"relu_","i":[2],"o":[{"t":3,"into":0}],"c":700}}
{"rel":{"t":2}}
{"pin":{"t":3}}
{"end":{"events":5}}
"#;

const LOG: &str = r#"{"INSTRUCTION":"ANNOTATE","ANNOTATION":"START"}
{"INSTRUCTION":"CONSTANT","NAME":"x"}
{"INSTRUCTION":"MEMORY","NAME":"x","MEMORY":"64"}
"#;

fn remat(arguments: &[&str]) -> Command {
    let mut command = assert_cmd::cargo::cargo_bin_cmd!("remat");
    command.args(arguments);
    command
}

/// A directory with `step.trace` and `step.log` in it.
fn files() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("step.trace"), TRACE).unwrap();
    fs::write(directory.path().join("step.log"), LOG).unwrap();
    let path = directory.path().to_owned();
    (directory, path)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
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

#[test]
fn info_prints_a_table() {
    let (_directory, path) = files();
    let (out, err, code) = answer(&mut remat(&[
        "trace",
        "info",
        text(&path.join("step.trace")),
    ]));
    assert_eq!((err.as_str(), code), ("", Some(0)));
    for row in [
        "format                      Remat trace 1, by remat 0.1.0",
        "ops                         2 (0 cannot be replayed)",
        "tensors                     3",
        "constants                   1 (4.00 KiB)",
        "bytes made by ops           8.00 KiB",
        "largest workspace           1.00 KiB",
        "total cost                  1.50 ms",
        "unconstrained peak, cuda:0  13.00 KiB (13312 bytes)",
        "model                       toy",
    ] {
        assert!(
            out.lines().any(|line| line == row),
            "{row:?} is missing in\n{out}"
        );
    }
}

#[test]
fn texts_of_a_trace_stay_in_their_rows() {
    let hostile = TRACE
        .replace("remat 0.1.0", "me\\nops  9\\u001b[2J")
        .replace("\"cuda:0\"", "\"cu\\rda\\u0007\"")
        .replace("\"model\":\"toy\"", "\"mo\\ndel\":\"t\\u009boy\"");
    let (out, err, code) = answer(remat(&["trace", "info", "-"]).write_stdin(hostile));
    assert_eq!((err.as_str(), code), ("", Some(0)));
    for row in [
        "format                      Remat trace 1, by me ops  9 [2J",
        "unconstrained peak, cu da   13.00 KiB (13312 bytes)",
        "mo del                      t oy",
    ] {
        assert!(
            out.lines().any(|line| line == row),
            "{row:?} is missing in\n{out:?}"
        );
    }
}

#[test]
fn info_prints_a_line_of_json() {
    let (_directory, path) = files();
    let (out, err, code) = answer(&mut remat(&[
        "trace",
        "info",
        "--json",
        text(&path.join("step.trace")),
    ]));
    assert_eq!((err.as_str(), code, out.lines().count()), ("", Some(0), 1));
    let value: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(value["format"], "remat");
    assert_eq!(value["events"], 5);
    assert_eq!(value["ops"], 2);
    assert_eq!(value["cost_ns"], 1_500_700);
    assert_eq!(
        value["unconstrained_peak_bytes"],
        serde_json::json!([13312])
    );
}

#[test]
fn info_reads_logs_from_standard_input() {
    let (out, err, code) = answer(remat(&["trace", "info", "-"]).write_stdin(LOG));
    assert_eq!((err.as_str(), code), ("", Some(0)));
    assert!(out.contains("DTR log"), "{out}");
    assert!(
        out.contains("unconstrained peak, pool 0  64 B (64 bytes)"),
        "{out}"
    );
}

#[test]
fn check_accepts_what_is_valid() {
    let (_directory, path) = files();
    let file = path.join("step.trace");
    let (out, err, code) = answer(&mut remat(&["trace", "check", text(&file)]));
    assert_eq!(
        (out, err.as_str(), code),
        (
            format!("{}: valid, 5 events\n", file.display()),
            "",
            Some(0)
        )
    );
}

#[test]
fn check_tells_the_first_fault_in_one_line() {
    let damaged = TRACE.replace("\"rel\":{\"t\":2}", "\"rel\":{\"t\":9}");
    let (out, err, code) = answer(remat(&["trace", "check", "-"]).write_stdin(damaged));
    assert_eq!((out.as_str(), code), ("", Some(1)));
    assert_eq!(
        err,
        "remat: <stdin>:5: tensor 9 is used but not defined by any line before; \
         mend the line or record the trace again\n"
    );
}

#[test]
fn a_missing_file_is_told_by_every_command() {
    for command in [
        &["trace", "info", "no-such-file"][..],
        &["trace", "check", "no-such-file"],
        &["trace", "convert", "no-such-file", "-"],
    ] {
        let (out, err, code) = answer(&mut remat(command));
        assert_eq!((out.as_str(), code), ("", Some(1)));
        assert_eq!(
            err,
            "remat: no-such-file: cannot be opened: No such file or directory (os error 2); check the path\n"
        );
    }
}

#[test]
fn convert_goes_by_the_names_ending() {
    let (_directory, path) = files();
    for (input, output, format) in [
        ("step.log", "new.trace.zst", Format::Remat),
        ("step.log", "new.gz", Format::Remat),
        ("step.trace", "new.log", Format::Dtr),
        ("step.trace", "new.dtr.gz", Format::Dtr),
    ] {
        let output = path.join(output);
        let (out, _, code) = answer(&mut remat(&[
            "trace",
            "convert",
            text(&path.join(input)),
            text(&output),
        ]));
        assert_eq!((out.as_str(), code), ("", Some(0)));
        assert_eq!(
            open(&output).unwrap().format(),
            format,
            "{}",
            output.display()
        );
        assert!(open(&output).unwrap().all(|event| event.is_ok()));
    }
}

#[test]
fn convert_takes_the_format_from_to_and_says_what_is_lost() {
    let (_directory, path) = files();
    let (out, err, code) = answer(&mut remat(&[
        "trace",
        "convert",
        "--to",
        "dtr",
        text(&path.join("step.trace")),
        "-",
    ]));
    assert_eq!(code, Some(0));
    assert_eq!(
        err,
        "remat: a DTR log cannot say everything; left out: 1 workspaces, 1 in-place writes (now copies), 1 pins\n"
    );
    assert!(
        out.starts_with("{\"INSTRUCTION\":\"ANNOTATE\",\"ANNOTATION\":\"START\"}\n"),
        "{out}"
    );
    assert!(
        out.ends_with("{\"INSTRUCTION\":\"RELEASE\",\"NAME\":\"x2\"}\n"),
        "{out}"
    );
}

#[test]
fn convert_keeps_header_and_events_of_a_trace() {
    let (_directory, path) = files();
    let (out, err, code) = answer(&mut remat(&[
        "trace",
        "convert",
        text(&path.join("step.trace")),
        "-",
    ]));
    assert_eq!((out.as_str(), err.as_str(), code), (TRACE, "", Some(0)));
}

#[test]
fn convert_of_a_damaged_trace_leaves_no_output_by_its_name() {
    let (_directory, path) = files();
    fs::write(path.join("step.trace"), &TRACE[..TRACE.len() - 30]).unwrap();
    let output = path.join("new.trace");
    let (_, err, code) = answer(&mut remat(&[
        "trace",
        "convert",
        text(&path.join("step.trace")),
        text(&output),
    ]));
    assert_eq!((code, output.exists()), (Some(1), false));
    assert!(err.contains("step.trace:6: the file is cut off"), "{err}");
}

#[test]
fn an_output_that_cannot_be_written_is_told() {
    let (_directory, path) = files();
    let output = path.join("no-such-directory/new.trace");
    let (_, err, code) = answer(&mut remat(&[
        "trace",
        "convert",
        text(&path.join("step.trace")),
        text(&output),
    ]));
    assert_eq!(code, Some(1));
    assert!(
        err.starts_with(&format!("remat: {}: cannot be written: ", output.display())),
        "{err}"
    );
    assert_eq!(err.lines().count(), 1);
}

#[test]
fn an_output_that_is_a_link_stays_one() {
    let (_directory, path) = files();
    let link = path.join("link.trace");
    std::os::unix::fs::symlink("linked.trace", &link).unwrap();
    let (_, err, code) = answer(&mut remat(&[
        "trace",
        "convert",
        text(&path.join("step.log")),
        text(&link),
    ]));
    assert_eq!((err.as_str(), code), ("", Some(0)));
    assert!(link.is_symlink() && path.join("linked.trace").is_file());
}

#[test]
fn convert_reads_a_trace_that_is_called_like_its_output_not_yet_whole() {
    let (_directory, path) = files();
    let cut_off = &TRACE[..TRACE.len() - 30];
    for (text_of_input, code_expected) in [(TRACE, 0), (cut_off, 1)] {
        let (input, output) = (path.join("new.trace.partial"), path.join("new.trace"));
        fs::write(&input, text_of_input).unwrap();
        let (_, err, code) = answer(&mut remat(&[
            "trace",
            "convert",
            text(&input),
            text(&output),
        ]));
        assert_eq!(code, Some(code_expected), "{err}");
        assert_eq!(fs::read_to_string(&input).unwrap(), text_of_input);
        assert_eq!(fs::read_to_string(&output).unwrap(), TRACE);
    }
}

#[test]
fn standard_streams_are_refused_where_they_cannot_serve() {
    for command in [
        &["verify", "chain", "-", "-"][..],
        &["verify", "cut", "-", "-"],
        &["verify", "step", "-", "-"],
        &["simulate", "-", "-"],
        &["min-budget", "-", "-"],
        &["simulate", "step.trace", "--plan=-,-"],
        &["figures", "out", "--from", "-", "-"],
    ] {
        let (out, err, code) = answer(remat(command).write_stdin(TRACE));
        assert_eq!((out.as_str(), code), ("", Some(2)), "{command:?}");
        let told = "remat: - is named 2 times: standard input can be read once; name files\n";
        assert_eq!(err, told, "{command:?}");
    }
    let (directory, path) = files();
    let mut figures = remat(&["figures", "-", "--from", "step.trace"]);
    let (out, err, code) = answer(figures.current_dir(&path));
    assert_eq!((out.as_str(), err.lines().count(), code), ("", 1, Some(2)));
    assert!(err.contains("name a folder, or ./-"), "{err}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
}

#[test]
fn names_of_files_stay_in_their_lines() {
    let (_directory, path) = files();
    let name = "st\u{1b}[2Jep\n.trace";
    fs::write(path.join(name), TRACE).unwrap();
    for (command, told) in [
        (
            &["trace", "check", name][..],
            "st [2Jep .trace: valid, 5 events\n",
        ),
        (
            &["simulate", name, "--ratio=1", "--policy=lru"],
            "\nst [2Jep .trace: 13.00 KiB and ",
        ),
        (
            &["min-budget", name, "--policy=lru"],
            "\nst [2Jep .trace: 13.00 KiB without a limit\n",
        ),
        (
            &["plan", "step", name, "--ratio=1,0.99", "--iterations=1"],
            "\nst [2Jep .trace: 13.00 KiB and ",
        ),
    ] {
        let (out, _, _) = answer(remat(command).current_dir(&path));
        assert!(out.starts_with(told), "{command:?}: {out:?}");
    }
}

#[test]
fn policies_are_listed_one_a_line() {
    let (out, err, code) = answer(&mut remat(&["policies"]));
    assert_eq!((err.as_str(), code), ("", Some(0)));
    assert_eq!(out.lines().count(), remat_sim::Eviction::names().count());
    for (line, name) in out.lines().zip(remat_core::names()) {
        let (first, rest) = line.split_once(' ').unwrap();
        assert_eq!(first, name);
        assert!(!rest.trim().is_empty(), "{name} has no description");
    }
    assert_eq!("dtr-eq".parse(), Ok(remat_core::Policy::default()));
    for (name, used) in [
        ("dtr-eq", "(default of min-budget)"),
        ("dtr-anc", "(default in training)"),
        ("coop", "(default in training in an arena)"),
    ] {
        let marked = |line: &&str| line.ends_with(used);
        let names: Vec<_> = out
            .lines()
            .filter(marked)
            .map(|l| l.split(" ").next())
            .collect();
        assert_eq!(names, [Some(name)]);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn help_that_finds_no_room_is_an_error() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
    let mut help = std::process::Command::new(assert_cmd::cargo::cargo_bin!("remat"));
    let ended = help.arg("--help").stdout(full.unwrap()).output().unwrap();
    let err = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1));
    assert!(err.contains("standard output"), "{err}");
}

#[test]
fn run_points_to_the_python_package() {
    for command in [
        &["run"][..],
        &["run", "--budget", "6GiB", "train.py", "--epochs", "3"],
    ] {
        let (out, err, code) = answer(&mut remat(command));
        assert_eq!((out.as_str(), code), ("", Some(2)));
        assert_eq!(
            err,
            "remat run and remat measure need the Python package: pip install . \
             (or: python -m remat run ...)\n"
        );
    }
}

#[test]
fn wrong_usage_exits_with_2() {
    for command in [
        &[][..],
        &["frobnicate"],
        &["trace"],
        &["trace", "info"],
        &["trace", "convert", "only-one"],
        &["trace", "convert", "a", "b", "--to", "xml"],
        &["policies", "extra"],
    ] {
        let (out, err, code) = answer(&mut remat(command));
        assert_eq!((out.as_str(), code), ("", Some(2)), "{command:?}");
        assert!(!err.is_empty(), "{command:?}");
    }
}

#[test]
fn help_and_version_exit_with_0() {
    for command in [
        &["--help"][..],
        &["trace", "--help"],
        &["trace", "convert", "--help"],
        &["--version"],
    ] {
        let (out, err, code) = answer(&mut remat(command));
        assert_eq!((err.as_str(), code), ("", Some(0)), "{command:?}");
        assert!(!out.is_empty());
    }
    let (out, _, _) = answer(&mut remat(&["trace", "info", "--help"]));
    assert!(out.contains("Examples:\n"), "{out}");
    let (out, _, _) = answer(&mut remat(&["verify", "cut", "--help"]));
    assert!(out.contains("only \"saved\" must"), "{out}");
}

#[cfg(unix)]
#[test]
fn a_reader_that_leaves_early_is_no_error() {
    use std::process::{Command, Stdio};
    let (_directory, path) = files();
    let long = path.join("long.trace");
    let mut writer = remat_trace::TraceWriter::create(&long).unwrap();
    for tensor in 0..50_000 {
        writer
            .write(&Event::Constant {
                tensor,
                bytes: 1,
                device: 0,
            })
            .unwrap();
    }
    writer.finish().unwrap();

    let mut child = Command::new(env!("CARGO_BIN_EXE_remat"))
        .args(["trace", "convert", text(&long), "-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}

#[test]
fn arguments_at_fault_are_told_in_one_line() {
    for arguments in [
        &["simulat"][..],
        &["simulate"],
        &["simulate", "x", "--ratio", "a\nb"],
        &["simulate", "x", "--ratoi", "0.5"],
        &["trace", "convert", "a", "b", "--to", "zz"],
    ] {
        let (out, err, code) = answer(&mut remat(arguments));
        assert_eq!((out.as_str(), code), ("", Some(2)));
        assert!(
            err.starts_with("error: ") && err.ends_with("; see --help\n"),
            "{err}"
        );
        assert_eq!(err.lines().count(), 1, "{err}");
    }
    let (_, help, code) = answer(&mut remat(&["plan"]));
    assert!(help.contains("Commands:\n") && code == Some(2), "{help}");
}

#[test]
fn a_folder_in_place_of_a_file_is_called_one() {
    let folder = tempfile::tempdir().unwrap();
    let folder = text(folder.path());
    for arguments in [
        &["trace", "info", folder][..],
        &["trace", "check", folder],
        &["simulate", folder],
        &["plan", "step", folder, "--ratio", "0.5"],
        &["plan", "chain", folder, "--budget", "1GiB"],
        &["verify", "step", folder, folder],
    ] {
        let (out, err, code) = answer(&mut remat(arguments));
        assert_eq!((out.as_str(), code), ("", Some(1)));
        assert!(
            err.starts_with(&format!("remat: {folder}: is a folder; name a ")),
            "{err}"
        );
        assert_eq!(err.lines().count(), 1, "{err}");
    }
}
