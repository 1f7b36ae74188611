//! Recorded steps that were read, and runs of them in order.

use crate::failure::Failure;
use crate::progress::Shown;
use indicatif::ProgressBar;
use remat_core::Bytes;
use remat_figures::runs::Step;
use remat_sim::{Base, Program, in_order};
use remat_trace::Event;
use std::fmt::Display;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// A log that was read, and its run without a limit.
pub(crate) struct Log {
    /// The path as it is told.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) program: Program,
    pub(crate) base: Base,
}

impl Log {
    /// Reads a trace or log, and runs it without a limit.
    pub(crate) fn read(path: &Path) -> Result<Log, Failure> {
        let name = path.display().to_string();
        let reader = remat_trace::open(path)?.with_mutations_in_place();
        let program = Program::read_as(reader.format(), Shown::new(reader, path))?;
        match program.base() {
            Ok(base) => Ok(Log {
                name,
                path: path.to_owned(),
                program,
                base,
            }),
            Err(unsound) => Err(Failure::Input(format!("{name}: {unsound}"))),
        }
    }

    /// The exactness of smallest and cutoff budgets: a 4096th of the memory without a limit.
    pub(crate) fn within(&self) -> Bytes {
        Bytes((self.base.memory.0 / 4096).max(1))
    }

    /// The step as figures take it.
    pub(crate) fn step(&self) -> Step<'_> {
        Step {
            name: &self.name,
            program: &self.program,
            base: &self.base,
        }
    }
}

/// The events of a trace or log. Mutations of a DTR log write into copies.
pub(crate) fn events(path: &Path) -> Result<Vec<Event>, Failure> {
    let reader = Shown::new(remat_trace::open(path)?, path);
    reader.map(|event| event.map_err(Failure::from)).collect()
}

/// Whether a line of output is the first about its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    First,
    Later,
}

/// Works on cases of logs on so many threads, and takes the results in order. The first failure ends the work.
pub(crate) fn work<C: Sync, T: Send, E: Display + Send>(
    cases: &[(&Log, C)],
    threads: usize,
    work: impl Fn(&Log, &C) -> Result<T, E> + Sync,
    mut take: impl FnMut(usize, T) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let find = |index: usize| {
        let (log, case) = &cases[index];
        work(log, case)
    };
    let ended = in_order(cases.len(), threads, find, |index, found| {
        let named = |error| Failure::Input(format!("{}: {error}", cases[index].0.name));
        match found.map_err(named).and_then(|found| take(index, found)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(failure) => ControlFlow::Break(failure),
        }
    });
    match ended {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(failure) => Err(failure),
    }
}

/// [Works](work) on cases and prints a text for each result. The caller's work moves the bar, which is cleared at the
/// end.
pub(crate) fn print<C: Sync, T: Send, E: Display + Send>(
    cases: &[(&Log, C)],
    threads: usize,
    bar: &ProgressBar,
    find: impl Fn(&Log, &C) -> Result<T, E> + Sync,
    describe: impl Fn(usize, &T, Place) -> String,
) -> Result<(), Failure> {
    let ended = work(cases, threads, find, |index, found| {
        let again = index > 0 && std::ptr::eq(cases[index - 1].0, cases[index].0);
        let text = describe(
            index,
            &found,
            if again { Place::Later } else { Place::First },
        );
        // One write a case: a reader that is cut off in the middle has whole lines.
        let written = bar.suspend(|| io::stdout().write_all(text.as_bytes()));
        written.map_err(Failure::output)
    });
    bar.finish_and_clear();
    ended?;
    io::stdout().flush().map_err(Failure::output)
}
