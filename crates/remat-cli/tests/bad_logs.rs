//! Logs that are damaged, contradictory or made to exhaust the reader, under `remat simulate` and `remat figures`: one
//! line with file and line, exit code 1, promptly and in bounded memory.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output};

const HEADER: &str = "{\"remat-trace\":1}\n";
const CONSTANT: &str = "{\"const\":{\"t\":1,\"b\":8}}\n";

/// A log's beginning: three lines.
const START: &str = r#"{"INSTRUCTION":"ANNOTATE","ANNOTATION":"START"}
{"INSTRUCTION":"CONSTANT","NAME":"x"}
{"INSTRUCTION":"MEMORY","NAME":"x","MEMORY":"8"}
"#;

/// Runs both commands on the file within a gibibyte of address space.
fn answers(log: &Path) -> [Output; 2] {
    let out = log.with_extension("figures");
    let simulate = vec!["simulate".as_ref(), log.as_os_str()];
    let figures = vec![
        "figures".as_ref(),
        out.as_os_str(),
        "--from".as_ref(),
        log.as_os_str(),
    ];
    [simulate, figures].map(|arguments| {
        let limited = "ulimit -v 1048576 && ulimit -t 120 && exec \"$0\" \"$@\"";
        let mut command = Command::new("sh");
        command
            .args(["-c", limited])
            .arg(assert_cmd::cargo::cargo_bin!("remat"));
        command.args(arguments).output().unwrap()
    })
}

/// Both commands refuse the file and say this of that line.
fn check(log: &Path, line: u32, told: &str) {
    check_at(log, &format!("{line}: "), told);
}

fn check_at(log: &Path, place: &str, told: &str) {
    for answer in answers(log) {
        let message = String::from_utf8_lossy(&answer.stderr);
        let start = format!("remat: {}:{place}", log.display());
        assert!(
            message.starts_with(&start) && message.contains(told),
            "{start}... {told}: {message}"
        );
        assert_eq!(message.lines().count(), 1, "{message}");
        assert!(message.len() < 1000, "{message}");
        assert_eq!(answer.status.code(), Some(1));
        assert!(answer.stdout.is_empty());
    }
}

fn call(fields: &str) -> String {
    format!("{START}{{\"INSTRUCTION\":\"CALL\",{fields}}}\n")
}

/// A result y of an op that reads x, with these further lines about y.
fn result(lines: &[&str]) -> String {
    let made = "\"NAME\":\"f\",\"ARGS\":[\"x\"],\"RESULT\":[\"y\"],\"TIME\":\"1\"";
    let lines: String = lines
        .iter()
        .map(|line| format!("{{\"INSTRUCTION\":{line}}}\n"))
        .collect();
    call(made) + &lines
}

/// A line about the memory of the result.
fn memory(bytes: &str) -> String {
    format!("\"MEMORY\",\"NAME\":\"y\",\"MEMORY\":{bytes}")
}

/// An op that reads and makes nothing and takes so long.
fn timed(time: &str) -> String {
    call(&format!(
        "\"NAME\":\"f\",\"ARGS\":[],\"RESULT\":[],\"TIME\":{time}"
    ))
}

fn op(fields: &str) -> String {
    format!("{HEADER}{CONSTANT}{{\"op\":{{\"n\":\"f\",{fields}}}}}\n")
}

#[test]
fn contradictions_are_told_with_their_line() {
    let circle = call(
        "\"NAME\":\"f\",\"ARGS\":[\"z\"],\"RESULT\":[\"y\"],\"TIME\":\"1\"}\n\
         {\"INSTRUCTION\":\"CALL\",\"NAME\":\"f\",\"ARGS\":[\"y\"],\"RESULT\":[\"z\"],\"TIME\":\"1\"",
    );
    let overflow = "\"8\"".replace('8', &"9".repeat(30));
    let folder = tempfile::tempdir().unwrap();
    for (number, (text, line, told)) in [
        // Not the format.
        (format!("{START}{{\"INSTRUCTION\"\n"), 4, "EOF"),
        (format!("{START}[1,2]\n"), 4, "invalid type"),
        (format!("{START}nonsense\n"), 4, "expected"),
        (
            format!("{HEADER}{}\n", "[".repeat(100_000)),
            2,
            "mend the line",
        ),
        // Fields that are missing.
        (
            call("\"NAME\":\"f\",\"ARGS\":[\"x\"],\"RESULT\":[]"),
            4,
            "missing field `TIME`",
        ),
        (
            call("\"NAME\":\"f\",\"ARGS\":[\"x\"],\"TIME\":\"1\""),
            4,
            "missing field `RESULT`",
        ),
        (
            result(&["\"MEMORY\",\"NAME\":\"y\""]),
            5,
            "missing field `MEMORY`",
        ),
        (op("\"o\":[{\"b\":8}]"), 3, "missing field `t`"),
        (op("\"o\":[{\"t\":2}]"), 3, "an output needs"),
        // Ids that nothing made.
        (
            call("\"NAME\":\"f\",\"ARGS\":[\"z\"],\"RESULT\":[],\"TIME\":\"1\""),
            4,
            "\"z\" is used but not defined",
        ),
        (op("\"i\":[7]"), 3, "tensor 7 is used but not defined"),
        // Sizes and times below nothing.
        (
            result(&[&memory("\"-8\"")]),
            5,
            "\"-8\" is not a whole number",
        ),
        (timed("\"-1\""), 4, "\"-1\" is not a whole number"),
        (op("\"o\":[{\"t\":2,\"b\":-8}]"), 3, "integer `-8`"),
        (op("\"c\":-1"), 3, "integer `-1`"),
        // And too large.
        (
            result(&[&memory(&overflow)]),
            5,
            "is not a whole number of 64 bits",
        ),
        (
            result(&[
                &memory("\"18446744073709551615\""),
                "\"ALIAS\",\"NAME\":\"y\",\"ALIAS\":\"-1\"",
            ]),
            6,
            "above 2^53",
        ),
        (timed(&overflow), 4, "is not a whole number of 64 bits"),
        (
            op("\"o\":[{\"t\":2,\"b\":9223372036854775807}]"),
            3,
            "above 2^53",
        ),
        (op("\"c\":1e300"), 3, "floating point"),
        // Views of themselves and of one another.
        (
            call("\"NAME\":\"f\",\"ARGS\":[\"y\"],\"RESULT\":[\"y\"],\"TIME\":\"1\""),
            4,
            "\"y\" is used but not defined",
        ),
        (circle, 4, "\"z\" is used but not defined"),
        (
            result(&[&memory("\"8\""), "\"ALIAS\",\"NAME\":\"y\",\"ALIAS\":\"1\""]),
            6,
            "ALIAS names argument 1",
        ),
        (
            op("\"i\":[2],\"o\":[{\"t\":2,\"view\":0}]"),
            3,
            "tensor 2 is used but not defined",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let log = folder.path().join(format!("{number}.log"));
        fs::write(&log, text).unwrap();
        check(&log, line, told);
    }
}

/// Gzip and zstd of a text that is repeated so many times after a beginning.
fn packed(beginning: &str, text: &str, times: usize) -> [(&'static str, Vec<u8>); 2] {
    let gzip = |text: &str| {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(text.as_bytes()).unwrap();
        packer.finish().unwrap()
    };
    let zstd = |text: &str| zstd::encode_all(text.as_bytes(), 1).unwrap();
    // Packed parts one after the other are a packed file.
    let whole = |first: Vec<u8>, part: Vec<u8>| [first, part.repeat(times)].concat();
    [
        ("gz", whole(gzip(beginning), gzip(text))),
        ("zst", whole(zstd(beginning), zstd(text))),
    ]
}

#[test]
fn a_line_of_five_gigabytes_is_refused_at_its_beginning() {
    let folder = tempfile::tempdir().unwrap();
    let too_long = "the line is longer than 16777216 bytes";
    let sparse = folder.path().join("sparse.log");
    let mut file = File::create(&sparse).unwrap();
    file.write_all(START.as_bytes()).unwrap();
    file.set_len(5 << 30).unwrap();
    check(&sparse, 4, too_long);
    let (part, times) = ("x".repeat(8 << 20), 640);
    for (ending, bytes) in packed(HEADER, &part, times) {
        assert!(bytes.len() < 32 << 20);
        let bomb = folder.path().join(format!("bomb.trace.{ending}"));
        fs::write(&bomb, bytes).unwrap();
        check(&bomb, 2, too_long);
    }
}

#[test]
fn valid_lines_without_end_are_refused_once_they_name_too_much() {
    let folder = tempfile::tempdir().unwrap();
    let line = format!("{{\"ens\":{{\"ts\":[{}1]}}}}\n", "1,".repeat(8_000_000));
    let beginning = format!("{HEADER}{CONSTANT}");
    for (ending, bytes) in packed(&beginning, &line, 300) {
        let bomb = folder.path().join(format!("bomb.trace.{ending}"));
        fs::write(&bomb, bytes).unwrap();
        check(
            &bomb,
            7,
            "there are more than 33554432 events and tensors named by them",
        );
    }
}

#[test]
fn packed_files_that_were_cut_off_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("{HEADER}{}", "{\"mark\":{\"n\":\"m\"}}\n".repeat(1000));
    for (ending, bytes) in packed(&text, "{\"end\":{\"events\":1000}}\n", 1) {
        for cut in [1, 30] {
            let part = folder.path().join(format!("cut{cut}.trace.{ending}"));
            fs::write(&part, &bytes[..bytes.len() - cut]).unwrap();
            check_at(
                &part,
                "",
                "the file is cut off: its compressed data stop before their end",
            );
        }
    }
}
