//! Every fault is told with file, line, what is wrong and what to do.

use remat_trace::{Limits, TraceReader, open};
use std::io::{self, Cursor, Read, Write};

const HEADER: &str = r#"{"remat-trace":1}"#;
const START: &str = r#"{"INSTRUCTION":"ANNOTATE","ANNOTATION":"START"}"#;
const X: &str = r#"{"INSTRUCTION":"CONSTANT","NAME":"x"}
{"INSTRUCTION":"MEMORY","NAME":"x","MEMORY":"8"}"#;

/// The message of the first error.
fn fault(input: impl Read + Send + 'static, limits: Limits) -> String {
    let reader = match TraceReader::new(input, "f", limits) {
        Ok(reader) => reader,
        Err(error) => return error.to_string(),
    };
    for event in reader {
        if let Err(error) = event {
            return error.to_string();
        }
    }
    "no fault".into()
}

fn fault_of_text(text: &str) -> String {
    fault(Cursor::new(text.to_owned()), Limits::default())
}

#[test]
fn faults_of_whole_files() {
    let other_format = "is neither a Remat trace (first line {\"remat-trace\":1,...}) nor a DTR log (lines with \
                        \"INSTRUCTION\"); check the path";
    for (text, message) in [
        ("", "f: is empty; record the trace again".to_owned()),
        ("\n \n", "f:2: is empty; record the trace again".to_owned()),
        ("hello\n", format!("f:1: {other_format}")),
        ("{}\n", format!("f:1: {other_format}")),
        ("[]\n", format!("f:1: {other_format}")),
        ("{\"remat-trace\":\"1\"}\n", format!("f:1: {other_format}")),
        (
            "{\"remat-trace\":2}\n",
            "f:1: is a Remat trace of version 2, this program reads version 1; upgrade remat or record it again".into(),
        ),
        (
            "{\"remat-trace\":1,\"pools\":3}\n",
            "f:1: invalid type: integer `3`, expected a sequence; mend the line or record the trace again".into(),
        ),
        ("{\"remat-trace\":1}\n", "f:1: the file is cut off: it has no end record; copy or record it again".into()),
        ("\n{\"remat-trace\":1}", "f:2: the file is cut off: it has no end record; copy or record it again".into()),
    ] {
        assert_eq!(fault_of_text(text), message, "{text:?}");
    }
}

/// Editors and shells of other systems write it.
#[test]
fn a_byte_order_mark_is_skipped() {
    let own = "{\"remat-trace\":1}\n{\"end\":{\"events\":0}}\n";
    for text in [own, &format!("{START}\n{X}\n")] {
        assert_eq!(
            fault_of_text(&format!("\u{feff}{text}")),
            fault_of_text(text)
        );
        assert_eq!(fault_of_text(text), "no fault");
    }
}

#[test]
fn faults_of_lines_in_own_traces() {
    let mend = "mend the line or record the trace again";
    for (lines, message) in [
        // The line is not what the format asks for.
        ("nonsense", format!("3: expected value; {mend}")),
        ("{\"rel\":{\"t\":1}", format!("3: EOF while parsing an object; {mend}")),
        ("{\"free\":{\"t\":1}}", format!("3: unknown variant `free`, expected one of `const`, `op`, `ret`, `rel`, `pin`, `ens`, `mark`, `plan`; {mend}")),
        ("{\"rel\":{\"t\":1,\"u\":2}}", format!("3: unknown field `u`, expected `t`; {mend}")),
        ("{\"rel\":{}}", format!("3: missing field `t`; {mend}")),
        ("{\"rel\":{\"t\":-1}}", format!("3: invalid value: integer `-1`, expected u64; {mend}")),
        ("{\"rel\":{\"t\":1.5}}", format!("3: invalid type: floating point `1.5`, expected u64; {mend}")),
        ("{\"const\":{\"t\":2,\"b\":1,\"p\":256}}", format!("3: invalid value: integer `256`, expected u8; {mend}")),
        ("{\"op\":{\"n\":\"f\",\"o\":[{\"t\":2}]}}", format!("3: an output needs exactly one of `b` (bytes), `view` and `into`; {mend}")),
        ("{\"op\":{\"n\":\"f\",\"i\":[1],\"o\":[{\"t\":2,\"b\":1,\"view\":0}]}}", format!("3: an output needs exactly one of `b` (bytes), `view` and `into`; {mend}")),
        ("\u{1}", format!("3: expected value; {mend}")),
        // The event contradicts those before it.
        ("{\"rel\":{\"t\":9}}", format!("3: tensor 9 is used but not defined by any line before; {mend}")),
        ("{\"ret\":{\"t\":9}}", format!("3: tensor 9 is used but not defined by any line before; {mend}")),
        ("{\"pin\":{\"t\":9}}", format!("3: tensor 9 is used but not defined by any line before; {mend}")),
        ("{\"ens\":{\"ts\":[1,9]}}", format!("3: tensor 9 is used but not defined by any line before; {mend}")),
        ("{\"rel\":{\"t\":1}}\n{\"rel\":{\"t\":1}}", format!("4: tensor 1 is used after its last reference was released; {mend}")),
        ("{\"rel\":{\"t\":1}}\n\n{\"op\":{\"n\":\"f\",\"i\":[1]}}", format!("5: tensor 1 is used after its last reference was released; {mend}")),
        ("{\"const\":{\"t\":1,\"b\":1}}", format!("3: tensor 1 is defined a second time; ids are unique for the whole trace; {mend}")),
        ("{\"rel\":{\"t\":1}}\n{\"const\":{\"t\":1,\"b\":1}}", format!("4: tensor 1 is defined a second time; ids are unique for the whole trace; {mend}")),
        ("{\"op\":{\"n\":\"f\",\"o\":[{\"t\":2,\"b\":1},{\"t\":2,\"b\":1}]}}", format!("3: tensor 2 is defined a second time; ids are unique for the whole trace; {mend}")),
        // An op that reads what it, or a later one, makes.
        ("{\"op\":{\"n\":\"f\",\"i\":[2],\"o\":[{\"t\":2,\"b\":1}]}}", format!("3: tensor 2 is used but not defined by any line before; {mend}")),
        ("{\"op\":{\"n\":\"f\",\"i\":[2]}}\n{\"const\":{\"t\":2,\"b\":1}}", format!("3: tensor 2 is used but not defined by any line before; {mend}")),
        ("{\"op\":{\"n\":\"f\",\"i\":[1],\"o\":[{\"t\":2,\"view\":1}]}}", format!("3: tensor 2 is made of input 1 (counted from 0), but the op has 1 inputs; {mend}")),
        ("{\"op\":{\"n\":\"f\",\"o\":[{\"t\":2,\"into\":0}]}}", format!("3: tensor 2 is made of input 0 (counted from 0), but the op has 0 inputs; {mend}")),
        ("{\"op\":{\"n\":\"f\",\"i\":[1,1],\"o\":[{\"t\":2,\"into\":0},{\"t\":3,\"into\":1}]}}", format!("3: two outputs are written into the storage of tensor 1; {mend}")),
        // Numbers that are too large.
        ("{\"const\":{\"t\":2,\"b\":9007199254740993}}", format!("3: a size of 9007199254740993 is above 2^53; {mend}")),
        ("{\"op\":{\"n\":\"f\",\"c\":18446744073709551615}}", format!("3: a cost of 18446744073709551615 is above 2^53; {mend}")),
        ("{\"op\":{\"n\":\"f\",\"w\":18446744073709551615}}", format!("3: a workspace of 18446744073709551615 is above 2^53; {mend}")),
        ("{\"const\":{\"t\":18446744073709551615,\"b\":1}}", format!("3: a tensor id of 18446744073709551615 is above 2^53; {mend}")),
        ("{\"const\":{\"t\":2,\"b\":18446744073709551616}}", format!("3: invalid type: floating point `1.8446744073709552e+19`, expected u64; {mend}")),
        // Digits only.
        ("{\"plan\":{\"took\":{\"h\":\"+00000000000000a\",\"c\":1}}}", format!("3: \"+00000000000000a\" is no number of hexadecimal digits; {mend}")),
        ("{\"plan\":{\"follow\":{\"v\":1,\"s\":\"+00000000000000a\",\"c\":[1,0,1,0]}}}", format!("3: signatures of a plan are numbers of 16 hexadecimal digits; {mend}")),
        // The end.
        ("{\"end\":{\"events\":2}}", "3: the end record counts 2 events, 1 were read; lines were lost or added: copy or record it again".into()),
        ("{ \"end\" : 2}", format!("3: invalid type: integer `2`, expected struct variant EndRecord::End; {mend}")),
        ("{\"end\":{\"events\":1}}\n{\"rel\":{\"t\":1}}", "4: a line follows the end record; remove it, or split the file there".into()),
        ("{\"mark\":{\"n\":\"\"}}", "3: the file is cut off: it has no end record; copy or record it again".into()),
    ] {
        let text = format!("{HEADER}\n{{\"const\":{{\"t\":1,\"b\":8}}}}\n{lines}\n");
        assert_eq!(fault_of_text(&text), format!("f:{message}"), "{lines}");
    }
}

#[test]
fn an_incomplete_last_line_is_a_cut_off_file() {
    let text = format!("{HEADER}\n{{\"const\":{{\"t\":1,\"b\":8}}}}\n{{\"rel\":{{\"t");
    assert_eq!(
        fault_of_text(&text),
        "f:3: the file is cut off: its last line is incomplete; copy or record it again"
    );
}

#[test]
fn costs_and_sizes_that_add_up_to_too_much_are_refused() {
    let large = "{\"op\":{\"n\":\"f\",\"c\":9007199254740992}}\n".repeat(513);
    assert_eq!(
        fault_of_text(&format!("{HEADER}\n{large}")),
        "f:514: the costs of the trace add up to more than 2^62; mend the line or record the trace again"
    );
    let large: String = (0..513)
        .map(|tensor| format!("{{\"const\":{{\"t\":{tensor},\"b\":9007199254740992}}}}\n"))
        .collect();
    assert_eq!(
        fault_of_text(&format!("{HEADER}\n{large}")),
        "f:514: the sizes of the trace add up to more than 2^62; mend the line or record the trace again"
    );
}

#[test]
fn faults_of_lines_in_logs() {
    let mend = "mend the line or record the log again";
    for (lines, message) in [
        ("{\"INSTRUCTION\":\"PIN\",\"NAME\":\"x\"}", "4: unknown variant `PIN`, expected one of `ANNOTATE`, `CONSTANT`, `MEMORY`, `ALIAS`, `CALL`, `MUTATE`, `COPY`, `COPYFROM`, `COPY_FROM`, `RELEASE`; mend the line or record the trace again".to_owned()),
        ("{\"INSTRUCTION\":\"MEMORY\",\"NAME\":\"x\",\"MEMORY\":\"much\"}", "4: \"much\" is not a whole number of 64 bits; mend the line or record the trace again".to_owned()),
        ("{\"INSTRUCTION\":\"ALIAS\",\"NAME\":\"x\",\"ALIAS\":\"-2\"}", "4: \"-2\" is neither an index nor -1; mend the line or record the trace again".to_owned()),
        ("{\"INSTRUCTION\":\"MEMORY\",\"NAME\":\"x\",\"MEMORY\":\"8\"}", format!("4: MEMORY of \"x\", which the CALL or CONSTANT before it does not make; {mend}")),
        ("{\"INSTRUCTION\":\"COPY\",\"DST\":\"y\",\"SRC\":\"z\"}", format!("4: \"z\" is used but not defined by any line before; {mend}")),
        ("{\"INSTRUCTION\":\"COPY_FROM\",\"DST\":\"y\",\"SRC\":\"x\"}", format!("4: \"y\" is used but not defined by any line before; {mend}")),
        ("{\"INSTRUCTION\":\"COPY\",\"DST\":\"x\",\"SRC\":\"x\"}", format!("4: \"x\" is defined a second time before its release; {mend}")),
        ("{\"INSTRUCTION\":\"CALL\",\"NAME\":\"f\",\"ARGS\":[\"y\"],\"RESULT\":[],\"TIME\":\"1\"}", format!("4: \"y\" is used but not defined by any line before; {mend}")),
        ("{\"INSTRUCTION\":\"CALL\",\"NAME\":\"f\",\"ARGS\":[\"x\"],\"RESULT\":[\"y\"],\"TIME\":\"1\"}\n{\"INSTRUCTION\":\"MEMORY\",\"NAME\":\"y\",\"MEMORY\":\"8\"}\n{\"INSTRUCTION\":\"ALIAS\",\"NAME\":\"y\",\"ALIAS\":\"1\"}", format!("6: ALIAS names argument 1 (counted from 0), but the call has 1; {mend}")),
        ("{\"INSTRUCTION\":\"CALL\",\"NAME\":\"f\",\"ARGS\":[\"x\"],\"RESULT\":[\"y\"],\"TIME\":\"1\"}\n{\"INSTRUCTION\":\"RELEASE\",\"NAME\":\"y\"}", format!("5: MEMORY or ALIAS of \"y\" is missing before this instruction; {mend}")),
        ("{\"INSTRUCTION\":\"CONSTANT\",\"NAME\":\"y\"}", "4: the file is cut off: MEMORY or ALIAS of the last instruction is missing; copy or record it again".to_owned()),
        ("{\"INSTRUCTION\":\"MUTATE\",\"NAME\":\"f\",\"ARGS\":[\"x\"],\"MUTATE\":[1],\"TIME\":\"1\"}", format!("4: MUTATE names argument 1 (counted from 0), but the call has 1; {mend}")),
        ("{\"INSTRUCTION\":\"MUTATE\",\"NAME\":\"f\",\"ARGS\":[\"x\",\"x\"],\"MUTATE\":[0,1],\"TIME\":\"1\"}", format!("4: MUTATE changes \"x\" twice; {mend}")),
        ("{\"INSTRUCTION\":\"CALL\",\"NAME\":\"f\",\"ARGS\":[],\"RESULT\":[],\"TIME\":\"9007199254740993\"}", "4: a cost of 9007199254740993 is above 2^53; mend the line or record the trace again".to_owned()),
        ("{\"INSTRUCTION\":\"REL", "4: EOF while parsing a string; mend the line or record the trace again".to_owned()),
    ] {
        let text = format!("{START}\n{X}\n{lines}\n");
        assert_eq!(fault_of_text(&text), format!("f:{message}"), "{lines}");
    }
}

#[test]
fn a_log_without_start_is_refused() {
    assert_eq!(
        fault_of_text(&format!("{X}\n")),
        "f:2: the log has no START; put {\"INSTRUCTION\":\"ANNOTATE\",\"ANNOTATION\":\"START\"} before the step; \
         mend the line or record the log again"
    );
}

#[test]
fn limits_stop_endless_input() {
    let endless = |text: &'static [u8]| {
        Cursor::new(HEADER)
            .chain(Cursor::new(b"\n"))
            .chain(Repeat(text, 0))
    };
    let limits = Limits {
        line: 1000,
        unpacked: 10_000,
        tensors: 10,
        ..Limits::default()
    };
    assert_eq!(
        fault(endless(b"x"), limits),
        "f:2: the line is longer than 1000 bytes, the most that is read; it is to hold one event"
    );
    assert_eq!(
        fault(endless(b"\n"), limits),
        "f:9984: the trace is longer than 10000 bytes unpacked, the most that is read; record fewer steps"
    );
    let many: String = (0..11)
        .map(|tensor| format!("{{\"const\":{{\"t\":{tensor},\"b\":1}}}}\n"))
        .collect();
    assert_eq!(
        fault(Cursor::new(format!("{HEADER}\n{many}")), limits),
        "f:12: there are more than 10 tensors, the limit of this reader; mend the line or record the trace again"
    );
}

#[test]
fn events_are_limited_by_what_they_name() {
    let limits = Limits {
        events: 10,
        ..Limits::default()
    };
    let constant = "{\"const\":{\"t\":1,\"b\":1}}";
    let marks = "{\"mark\":{\"n\":\"\"}}\n".repeat(20);
    let reads = "{\"ens\":{\"ts\":[1,1,1]}}\n".repeat(20);
    for (text, line) in [
        (marks, 12),
        (format!("{constant}\n{reads}"), 5),
        (
            format!(
                "{constant}\n{{\"op\":{{\"n\":\"f\",\"i\":[1,1,1,1,1,1],\"o\":[{{\"t\":2,\"b\":1}}]}}}}\n{reads}"
            ),
            4,
        ),
    ] {
        assert_eq!(
            fault(Cursor::new(format!("{HEADER}\n{text}")), limits),
            format!(
                "f:{line}: there are more than 10 events and tensors named by them, \
                 the most that are read; record fewer steps"
            )
        );
    }
}

#[test]
fn packed_bombs_stop_at_the_limit() {
    let bomb = zstd::encode_all(&vec![b'\n'; 50 << 20][..], 19).unwrap();
    let limits = Limits {
        unpacked: 1 << 20,
        ..Limits::default()
    };
    let message = fault(Cursor::new(bomb), limits);
    assert!(
        message.contains("longer than 1048576 bytes unpacked"),
        "{message}"
    );
}

#[test]
fn damaged_packing_is_told() {
    let text = format!("{HEADER}\n{{\"end\":{{\"events\":0}}}}\n");
    let zstd = zstd::encode_all(text.as_bytes(), 3).unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(text.as_bytes()).unwrap();
    for packed in [zstd, gzip.finish().unwrap()] {
        for cut in [3, packed.len() / 2] {
            let part = packed[..packed.len() - cut].to_vec();
            let message = fault(Cursor::new(part), Limits::default());
            assert!(
                message.contains("the file is cut off: its compressed data stop before their end"),
                "{message}"
            );
        }
    }

    // A compression method that gzip never had.
    let message = fault(
        Cursor::new([0x1f, 0x8b, 7, 0, 0, 0, 0, 0, 0, 0]),
        Limits::default(),
    );
    assert!(message.starts_with("f:1: cannot be read: "), "{message}");
    assert!(
        message.ends_with("if it is compressed it may be damaged: copy or record it again"),
        "{message}"
    );
}

#[test]
fn a_missing_file_is_told() {
    let message = open("no/such/file").map(|_| ()).unwrap_err().to_string();
    assert_eq!(
        message,
        "no/such/file: cannot be opened: No such file or directory (os error 2); check the path"
    );
}

#[test]
fn after_an_error_nothing_more_comes() {
    let text = format!("{HEADER}\nnonsense\n{{\"mark\":{{\"n\":\"\"}}}}\n");
    let mut reader = TraceReader::new(Cursor::new(text), "f", Limits::default()).unwrap();
    assert!(reader.next().is_some_and(|event| event.is_err()));
    assert!(reader.next().is_none());
}

/// Some bytes, for ever.
struct Repeat(&'static [u8], usize);

impl Read for Repeat {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        for byte in buffer.iter_mut() {
            *byte = self.0[self.1 % self.0.len()];
            self.1 += 1;
        }
        Ok(buffer.len())
    }
}
