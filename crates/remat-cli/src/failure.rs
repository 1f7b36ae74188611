//! The ways in which a command fails.

use crate::terminal::plain;
use remat_trace::TraceError;
use std::fmt;
use std::io;

/// Why a command stopped.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The input is at fault; the message is one line.
    Input(String),
    /// The arguments contradict one another; the message is one line.
    Usage(String),
    /// The command is part of the Python package.
    NeedsPython,
    /// Nobody reads the output any more.
    ReaderGone,
}

impl Failure {
    /// Tells why, and returns the exit code.
    pub(crate) fn report(self) -> i32 {
        match self {
            Failure::Input(message) => {
                complain(format_args!("remat: {}", shortened(&message)));
                1
            }
            Failure::Usage(message) => {
                complain(format_args!("remat: {message}"));
                2
            }
            Failure::NeedsPython => {
                complain(format_args!(
                    "remat run and remat measure need the Python package: pip install . (or: python -m remat run ...)"
                ));
                2
            }
            Failure::ReaderGone => 0,
        }
    }

    /// The failure to write to `place`.
    pub(crate) fn write(place: &str, error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::ReaderGone,
            _ => Failure::Input(format!(
                "{place}: cannot be written: {error}; check the path and the space left"
            )),
        }
    }

    /// The failure to write to standard output.
    pub(crate) fn output(error: io::Error) -> Self {
        Failure::write("standard output", error)
    }
}

impl From<TraceError> for Failure {
    fn from(error: TraceError) -> Self {
        Failure::Input(error.to_string())
    }
}

/// A message as one line that can be read: of one that quotes very long input, the beginning and the end.
fn shortened(message: &str) -> String {
    const MOST: usize = 1200;
    const KEPT: usize = MOST / 2;
    let line = plain(message);
    let letters = line.chars().count();
    if letters <= MOST {
        return line;
    }
    let (begin, end) = (line.chars().take(KEPT), line.chars().skip(letters - KEPT));
    begin.chain(" ... ".chars()).chain(end).collect()
}

/// A line on standard error; `eprintln!` would panic where that is closed.
pub(crate) fn complain(message: fmt::Arguments<'_>) {
    use io::Write;
    let _ = writeln!(io::stderr(), "{}", plain(&message.to_string()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_one_line_that_can_be_read() {
        assert_eq!(shortened("a\n\u{1b}[2Jb"), "a  [2Jb");
        let long = format!("begin{}end", "é".repeat(100_000));
        let line = shortened(&long);
        assert!(line.starts_with("beginé") && line.ends_with("éend"));
        assert_eq!(line.chars().count(), 1205);
    }
}
