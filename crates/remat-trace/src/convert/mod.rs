//! From logs to events and back.
//!
//! A log becomes a trace without loss: names become ids (counted from 0 in order of definition), `COPY`, `COPY_FROM`
//! and `RELEASE` become [`Retain`](Event::Retain) and [`Release`](Event::Release), `MUTATE` an op with a fresh output
//! for each argument it changes, as the paper says; what comes before the annotation `START` is skipped; and what is
//! referenced at the end is pinned, in order of first appearance: the paper's output condition.
//!
//! A trace becomes a log with what the log's format can say; [`Lost`] counts the rest:
//! - workspaces, and which pool a storage lives in, are left out;
//! - in-place outputs become `MUTATE` of a `COPY`, which in the paper's terms is copy-on-write: the log needs the bytes
//!   of both values. An op with outputs of other kinds besides becomes a `CALL` with results that are just as large;
//! - fresh outputs of an op that cannot be replayed become constants, and its cost is gone;
//! - [`Ensure`](Event::Ensure) and [`Pin`](Event::Pin) are left out: of all that, a log keeps the output condition only.

mod from_dtr;
mod lost;
mod to_dtr;

pub use from_dtr::FromDtr;
pub use lost::Lost;
pub use to_dtr::ToDtr;

use crate::dtr::LogWriter;
use crate::{Event, Format, Header, TraceError, TraceWriter, Violation};
use std::fmt;
use std::io;
use std::path::Path;

/// Writes events to a file in the format asked for.
///
/// `header` is the first line of the new trace; logs have none.
///
/// # Errors
/// The first error among the events, or of the file written; what was written so far is left as `PATH.partial`.
pub fn convert(
    events: impl Iterator<Item = Result<Event, TraceError>>,
    header: &Header,
    path: impl AsRef<Path>,
    to: Format,
) -> Result<Lost, ConvertError> {
    match to {
        Format::Remat => write_trace(events, header, path.as_ref()),
        Format::Dtr => write_log(events, path.as_ref()),
    }
}

fn write_trace(
    events: impl Iterator<Item = Result<Event, TraceError>>,
    header: &Header,
    path: &Path,
) -> Result<Lost, ConvertError> {
    let mut writer = TraceWriter::create_with(path, header)?;
    for event in events {
        writer.write(&event?)?;
    }
    writer.finish()?;
    Ok(Lost::default())
}

fn write_log(
    events: impl Iterator<Item = Result<Event, TraceError>>,
    path: &Path,
) -> Result<Lost, ConvertError> {
    let mut writer = LogWriter::create(path)?;
    let mut converter = ToDtr::default();
    let mut instructions = Vec::new();
    converter.start(&mut instructions);
    for event in events {
        converter.push(&event?, &mut instructions)?;
        for instruction in instructions.drain(..) {
            writer.write(&instruction)?;
        }
    }
    for instruction in instructions {
        writer.write(&instruction)?;
    }
    writer.finish()?;
    Ok(converter.lost())
}

/// Why a conversion stopped.
#[derive(Debug)]
pub enum ConvertError {
    /// The input is damaged.
    Read(TraceError),
    /// The output cannot be written.
    Write(io::Error),
    /// Events contradict one another (never so if a [`TraceReader`](crate::TraceReader) gave them).
    Invalid(Violation),
}

impl fmt::Display for ConvertError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConvertError::Read(error) => error.fmt(f),
            ConvertError::Write(error) => error.fmt(f),
            ConvertError::Invalid(violation) => violation.fmt(f),
        }
    }
}

impl std::error::Error for ConvertError {}

impl From<TraceError> for ConvertError {
    fn from(error: TraceError) -> Self {
        ConvertError::Read(error)
    }
}

impl From<io::Error> for ConvertError {
    fn from(error: io::Error) -> Self {
        ConvertError::Write(error)
    }
}

impl From<Violation> for ConvertError {
    fn from(violation: Violation) -> Self {
        ConvertError::Invalid(violation)
    }
}
