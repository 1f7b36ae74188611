//! Writing events to a file in either format.

use super::{Lost, ToDtr};
use crate::dtr::LogWriter;
use crate::{Event, Format, Header, TraceError, TraceWriter, Violation};
use std::fmt;
use std::io;
use std::path::Path;

/// Writes events to a file in the format `to`.
///
/// `header` is the first line of the new trace; logs have none.
///
/// # Errors
/// The first error among the events, or of the file written. The part written so far stays as `PATH.partial`.
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

/// The reason why a conversion stopped.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConvertError {
    /// The input cannot be read.
    Read(TraceError),
    /// The output cannot be written.
    Write(io::Error),
    /// Events contradict one another. Events from a [`TraceReader`](crate::TraceReader) never do.
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
