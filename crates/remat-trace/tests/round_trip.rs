//! Events that are written are read back, and no input makes the reader panic.

mod valid_traces;

use proptest::prelude::*;
use remat_trace::{Event, Format, Header, Limits, TraceReader, TraceWriter, Validator, open};
use std::fs;
use std::io::Cursor;
use valid_traces::valid_traces;

const ENDINGS: [&str; 3] = ["trace", "trace.gz", "trace.zst"];

fn write(path: &std::path::Path, events: &[Event]) {
    let mut writer = TraceWriter::create(path).unwrap();
    for event in events {
        writer.write(event).unwrap();
    }
    writer.finish().unwrap();
}

proptest! {
    #[test]
    fn events_survive_every_packing(events in valid_traces()) {
        let directory = tempfile::tempdir().unwrap();
        for ending in ENDINGS {
            let path = directory.path().join("step").with_extension(ending);
            write(&path, &events);
            let read: Vec<Event> = open(&path).unwrap().collect::<Result<_, _>>().unwrap();
            prop_assert_eq!(&read, &events, "{}", ending);
        }
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        read_all(bytes);
    }

    #[test]
    fn random_bytes_behind_a_good_beginning_never_panic(
        beginning in 0usize..4,
        bytes in prop::collection::vec(any::<u8>(), 0..2000),
    ) {
        let beginnings: [&[u8]; 4] = [
            &[0x1f, 0x8b, 8, 0],
            &[0x28, 0xb5, 0x2f, 0xfd],
            b"{\"remat-trace\":1}\n{\"op\":{\"n\":\"",
            b"{\"INSTRUCTION\":\"ANNOTATE\",\"ANNOTATION\":\"START\"}\n{\"INSTRUCTION\":\"",
        ];
        read_all([beginnings[beginning], &bytes].concat());
    }

    #[test]
    fn a_damaged_file_never_panics_and_a_shortened_one_is_never_taken_for_whole(
        events in valid_traces(),
        packing in 0usize..3,
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("step").with_extension(ENDINGS[packing]);
        write(&path, &events);
        let mut bytes = fs::read(&path).unwrap();
        let at = at.index(bytes.len());
        // The last byte of a plain file is a newline, which may be missing.
        let shortened = bytes[..at.min(bytes.len() - 2)].to_vec();
        bytes[at] = byte;
        read_all(bytes);
        prop_assert!(!read_all(shortened));
    }

    #[test]
    fn valid_traces_are_valid(events in valid_traces()) {
        let mut validator = Validator::new(1000);
        for event in &events {
            prop_assert_eq!(validator.check(event), Ok(()));
        }
    }
}

/// Reads to the end; whether there was no error.
fn read_all(bytes: Vec<u8>) -> bool {
    match TraceReader::new(Cursor::new(bytes), "test", Limits::default()) {
        Ok(reader) => reader
            .map(|event| event.map_err(|error| error.to_string()))
            .all(|event| event.is_ok()),
        Err(error) => error.to_string().is_empty(),
    }
}

#[test]
fn a_file_has_its_name_only_when_it_is_whole() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("step.trace");
    let partial = directory.path().join("step.trace.partial");

    let writer = TraceWriter::create(&path).unwrap();
    assert!(partial.exists() && !path.exists());
    drop(writer);
    assert!(partial.exists() && !path.exists());

    let left = fs::read(&partial).unwrap();
    write(&path, &[]);
    assert!(path.exists());
    assert_eq!(fs::read(&partial).unwrap(), left);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
}

#[test]
fn the_header_is_read_back() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("step.trace.zst");
    let mut header = Header {
        devices: vec!["cpu".into(), "cuda:0".into()],
        ..Header::default()
    };
    header.about.insert("model".into(), "unet".into());
    TraceWriter::create_with(&path, &header)
        .unwrap()
        .finish()
        .unwrap();

    let reader = open(&path).unwrap();
    assert_eq!(
        (reader.header(), reader.format()),
        (Some(&header), Format::Remat)
    );
}

#[test]
fn writer_and_reader_move_between_threads() {
    fn is_send<T: Send>() {}
    is_send::<TraceWriter>();
    is_send::<TraceReader>();
}
