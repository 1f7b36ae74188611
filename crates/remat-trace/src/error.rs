//! Errors of readers: the file, the line, and the problem found there.

use crate::{VERSION, Violation};
use std::fmt;
use std::io;

/// An error that ends reading a trace. Its message names the place, the problem and a remedy, in one line.
#[derive(Debug)]
pub struct TraceError {
    /// The path as the caller gave it; `<stdin>` for `-`.
    pub file: String,
    /// The line, counted from 1; 0 where no line was reached.
    pub line: u64,
    /// The problem found at that line.
    pub problem: Problem,
}

/// A problem with a trace.
#[derive(Debug)]
#[non_exhaustive]
pub enum Problem {
    /// The file cannot be opened.
    Open(io::Error),
    /// The file cannot be read, or its compression is damaged.
    Read(io::Error),
    /// The file has no line at all.
    Empty,
    /// The first line belongs to no known format.
    UnknownFormat,
    /// The trace was written in another version of the format.
    Version(u64),
    /// The line is not what the format asks for.
    Syntax(String),
    /// The file ends too early; the text says how the reader knows.
    Truncated(&'static str),
    /// Lines follow the end record.
    AfterEnd,
    /// The end record states another number of events than the reader counted.
    EventCount {
        /// The number in the end record.
        said: u64,
        /// The number of events read.
        read: u64,
    },
    /// A line is longer than the limit.
    LineTooLong {
        /// The limit in bytes.
        limit: usize,
    },
    /// The decompressed file is longer than the limit.
    TooLarge {
        /// The limit in bytes.
        limit: u64,
    },
    /// The trace holds more events than the limit. Each event counts with the tensors that it names.
    TooManyEvents {
        /// The limit.
        limit: u64,
    },
    /// The event contradicts those before it.
    Invalid(Violation),
    /// The log's instruction contradicts those before it; the text says how.
    Instruction(String),
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        write!(f, ": {}", self.problem)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Open(error) => write!(f, "cannot be opened: {error}; check the path"),
            Problem::Read(error) if error.kind() == io::ErrorKind::IsADirectory => {
                write!(f, "is a folder; name a trace or a log")
            }
            Problem::Read(error) => {
                write!(
                    f,
                    "cannot be read: {error}; if it is compressed it may be damaged: copy or record it again"
                )
            }
            Problem::Empty => write!(f, "is empty; record the trace again"),
            Problem::UnknownFormat => write!(
                f,
                "is neither a Remat trace (first line {{\"remat-trace\":1,...}}) nor a DTR log (lines with \
                 \"INSTRUCTION\"); check the path"
            ),
            Problem::Version(version) => write!(
                f,
                "is a Remat trace of version {version}, this program reads version {}; \
                 upgrade remat or record it again",
                VERSION
            ),
            Problem::Syntax(what) => write!(
                f,
                "{}; mend the line or record the trace again",
                in_one_line(what)
            ),
            Problem::Truncated(how) => {
                write!(f, "the file is cut off: {how}; copy or record it again")
            }
            Problem::AfterEnd => write!(
                f,
                "a line follows the end record; remove it, or split the file there"
            ),
            Problem::EventCount { said, read } => write!(
                f,
                "the end record counts {said} events, {read} were read; lines were lost or added: \
                 copy or record it again"
            ),
            Problem::LineTooLong { limit } => {
                write!(
                    f,
                    "the line is longer than {limit} bytes, the most that is read; it is to hold one event"
                )
            }
            Problem::TooLarge { limit } => {
                write!(
                    f,
                    "the trace is longer than {limit} bytes unpacked, the most that is read; record fewer steps"
                )
            }
            Problem::TooManyEvents { limit } => write!(
                f,
                "there are more than {limit} events and tensors named by them, the most that are read; \
                 record fewer steps"
            ),
            Problem::Invalid(violation) => {
                write!(f, "{violation}; mend the line or record the trace again")
            }
            Problem::Instruction(what) => {
                write!(
                    f,
                    "{}; mend the line or record the log again",
                    in_one_line(what)
                )
            }
        }
    }
}

/// Text quoted from the file, without control characters and cut after 300 characters.
fn in_one_line(text: &str) -> String {
    const MOST: usize = 300;
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    let mut line: String = text.chars().take(MOST).map(plain).collect();
    if text.chars().nth(MOST).is_some() {
        line.push_str("...");
    }
    line
}

impl std::error::Error for TraceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.problem {
            Problem::Open(error) | Problem::Read(error) => Some(error),
            Problem::Invalid(violation) => Some(violation),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_quoted_of_the_file_stays_one_short_line() {
        let error = TraceError {
            file: "step.log".into(),
            line: 2,
            problem: Problem::Syntax(format!(
                "unknown variant `CO\n\r\u{1b}[31m{}`",
                "x".repeat(1 << 16)
            )),
        };
        let message = error.to_string();
        assert!(!message.contains(char::is_control), "{message:?}");
        assert!(
            message.len() < 500
                && message.ends_with("...; mend the line or record the trace again")
        );
    }
}
