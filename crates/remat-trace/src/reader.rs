//! Reading traces of any format as events.

use crate::convert::FromDtr;
use crate::file::{Limits, Lines};
use crate::writer::EndRecord;
use crate::{Event, Format, Header, Problem, TraceError, VERSION, Validator, dtr};
use serde::Deserialize;
use std::collections::VecDeque;
use std::io::Read;
use std::path::Path;

/// Opens a trace for reading; `-` is standard input. The first bytes tell the compression, the first line the format.
///
/// # Errors
/// The file cannot be opened, or its first line belongs to no known format.
pub fn open(path: impl AsRef<Path>) -> Result<TraceReader, TraceError> {
    open_with(path, Limits::default())
}

/// [`open`] with limits that the caller sets.
///
/// # Errors
/// As [`open`].
pub fn open_with(path: impl AsRef<Path>, limits: Limits) -> Result<TraceReader, TraceError> {
    TraceReader::start(Lines::open(path.as_ref(), limits)?, limits)
}

/// The events of a trace, in order, each checked against those before it.
///
/// An error ends the iterator. The reader holds one line and what the [`Validator`] remembers, however long the trace
/// is.
#[derive(Debug)]
pub struct TraceReader {
    lines: Lines,
    validator: Validator,
    source: Source,
    state: State,
    limits: Limits,
    /// Events that may still come, each counted with the tensors that it names.
    left: u64,
}

#[derive(Debug)]
enum Source {
    Remat {
        header: Header,
        events: u64,
    },
    Dtr {
        converter: FromDtr,
        ready: VecDeque<Event>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The reader stands on the first line and has not used it yet.
    FirstLine,
    Reading,
    /// The last line was read; events made from it may still wait to be handed out.
    AllRead,
    Done,
}

impl TraceReader {
    /// Reads a trace from any source; errors call the source `name`.
    ///
    /// # Errors
    /// As [`open`].
    pub fn new(
        input: impl Read + Send + 'static,
        name: &str,
        limits: Limits,
    ) -> Result<Self, TraceError> {
        TraceReader::start(
            Lines::new(Box::new(input), name.to_owned(), limits)?,
            limits,
        )
    }

    fn start(mut lines: Lines, limits: Limits) -> Result<Self, TraceError> {
        if !lines.advance()? {
            return Err(lines.error(Problem::Empty));
        }
        let (source, state) = if dtr::is_log(lines.text()) {
            (
                Source::Dtr {
                    converter: FromDtr::default(),
                    ready: VecDeque::new(),
                },
                State::FirstLine,
            )
        } else {
            (
                Source::Remat {
                    header: read_header(&lines)?,
                    events: 0,
                },
                State::Reading,
            )
        };
        Ok(TraceReader {
            lines,
            validator: Validator::new(limits.tensors),
            source,
            state,
            limits,
            left: limits.events,
        })
    }

    /// The format found.
    pub fn format(&self) -> Format {
        match self.source {
            Source::Remat { .. } => Format::Remat,
            Source::Dtr { .. } => Format::Dtr,
        }
    }

    /// Reads a log's mutations as ops that write in place ([`FromDtr::in_place`]) instead of into copies. Call it
    /// before the first event is read. Remat's own traces say themselves which ops write in place, so it leaves them
    /// alone.
    pub fn with_mutations_in_place(mut self) -> Self {
        if let Source::Dtr { converter, .. } = &mut self.source {
            *converter = FromDtr::in_place();
        }
        self
    }

    /// The header of a Remat trace; `None` for a log, which has none.
    pub fn header(&self) -> Option<&Header> {
        match &self.source {
            Source::Remat { header, .. } => Some(header),
            Source::Dtr { .. } => None,
        }
    }

    /// Bytes of the stored file read so far, before unpacking; for progress bars.
    pub fn stored_bytes_read(&self) -> u64 {
        self.lines.stored_bytes()
    }

    fn step(&mut self) -> Result<Option<Event>, TraceError> {
        let event = match &mut self.source {
            Source::Remat { events, .. } => next_own(&mut self.lines, events)?,
            Source::Dtr { converter, ready } => {
                next_converted(&mut self.lines, &mut self.state, converter, ready)?
            }
        };
        if let Some(event) = &event {
            self.left = self.left.checked_sub(1 + event.names()).ok_or_else(|| {
                let limit = self.limits.events;
                self.lines.error(Problem::TooManyEvents { limit })
            })?;
            self.validator
                .check(event)
                .map_err(|violation| self.lines.error(Problem::Invalid(violation)))?;
        }
        Ok(event)
    }
}

impl Iterator for TraceReader {
    type Item = Result<Event, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.state == State::Done {
            return None;
        }
        let step = self.step().transpose();
        if !matches!(step, Some(Ok(_))) {
            self.state = State::Done;
        }
        step
    }
}

fn read_header(lines: &Lines) -> Result<Header, TraceError> {
    #[derive(Deserialize)]
    struct AnyVersion {
        #[serde(rename = "remat-trace")]
        version: u64,
    }
    match serde_json::from_slice::<AnyVersion>(lines.text()) {
        Err(_) => Err(lines.error(Problem::UnknownFormat)),
        Ok(AnyVersion { version }) if version != VERSION => {
            Err(lines.error(Problem::Version(version)))
        }
        Ok(_) => serde_json::from_slice(lines.text()).map_err(|error| lines.syntax(&error)),
    }
}

fn next_own(lines: &mut Lines, events: &mut u64) -> Result<Option<Event>, TraceError> {
    if !lines.advance()? {
        return Err(lines.error(Problem::Truncated("it has no end record")));
    }
    if is_end_record(lines.text()) {
        return read_end(lines, *events).map(|()| None);
    }
    let event = serde_json::from_slice(lines.text()).map_err(|error| lines.syntax(&error))?;
    *events += 1;
    Ok(Some(event))
}

/// Whether the line is an object whose first key is `end`. Found before parsing, so that a syntax error names the right
/// record.
fn is_end_record(line: &[u8]) -> bool {
    let inner = line.strip_prefix(b"{").map(<[u8]>::trim_ascii_start);
    inner.is_some_and(|inner| inner.starts_with(b"\"end\""))
}

fn read_end(lines: &mut Lines, read: u64) -> Result<(), TraceError> {
    let EndRecord::End { events: said } =
        serde_json::from_slice(lines.text()).map_err(|error| lines.syntax(&error))?;
    if said != read {
        return Err(lines.error(Problem::EventCount { said, read }));
    }
    if lines.advance()? {
        Err(lines.error(Problem::AfterEnd))
    } else {
        Ok(())
    }
}

fn next_converted(
    lines: &mut Lines,
    state: &mut State,
    converter: &mut FromDtr,
    ready: &mut VecDeque<Event>,
) -> Result<Option<Event>, TraceError> {
    while ready.is_empty() && *state != State::AllRead {
        let more = *state == State::FirstLine || lines.advance()?;
        let outcome = if more {
            *state = State::Reading;
            converter.push(&dtr::parse(lines)?, ready)
        } else {
            *state = State::AllRead;
            converter.finish(ready)
        };
        outcome.map_err(|problem| lines.error(problem))?;
    }
    Ok(ready.pop_front())
}
