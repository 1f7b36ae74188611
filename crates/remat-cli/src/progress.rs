//! Progress while a long trace is read, many are replayed, a long chain is planned, or a schedule is searched.

use crate::terminal::plain;
use indicatif::{ProgressBar, ProgressStyle};
use remat_plan::chain::Progress;
use remat_trace::{Event, TraceError, TraceReader};
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

/// Files below this are read in no time.
const WORTH_SHOWING: u64 = 4 << 20;

/// A reader whose progress is shown on standard error, if that is a terminal and the file is long.
pub(crate) struct Shown {
    reader: TraceReader,
    bar: ProgressBar,
    events: u64,
}

impl Shown {
    pub(crate) fn new(reader: TraceReader, path: &Path) -> Self {
        let length = fs::metadata(path).map_or(0, |file| file.len());
        let bar = if length >= WORTH_SHOWING {
            visible(length)
        } else {
            ProgressBar::hidden()
        };
        Shown {
            reader,
            bar,
            events: 0,
        }
    }
}

fn visible(length: u64) -> ProgressBar {
    // Draws on standard error, and not at all where that is no terminal.
    let bar = ProgressBar::new(length);
    match ProgressStyle::with_template("{bar:40} {bytes} of {total_bytes}, {eta} left") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// A bar for so many runs, on standard error, if that is a terminal.
pub(crate) fn runs(count: usize) -> ProgressBar {
    let bar = ProgressBar::new(count as u64);
    match ProgressStyle::with_template("{bar:40} run {pos} of {len}, {eta} left") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// A search on standard error, if that is a terminal.
pub(crate) struct Search {
    bar: ProgressBar,
    /// When it was last shown.
    shown: Option<Instant>,
}

impl Search {
    /// The time between two showings.
    const PAUSE: Duration = Duration::from_millis(100);

    /// A bar of this heading for a search that ends after so many parts.
    pub(crate) fn new(heading: &str, parts: u64) -> Search {
        let bar = ProgressBar::new(parts);
        let style = ProgressStyle::with_template("{bar:12} {prefix}: {msg}, {eta} left");
        let bar = match style {
            Ok(style) => bar.with_style(style).with_prefix(plain(heading)),
            Err(_) => bar,
        };
        Search { bar, shown: None }
    }

    /// Shows how far the search is, unless it was shown a moment ago.
    pub(crate) fn show(&mut self, part: u64, state: impl FnOnce() -> String) {
        if self.bar.is_hidden() || self.shown.is_some_and(|at| at.elapsed() < Self::PAUSE) {
            return;
        }
        self.shown = Some(Instant::now());
        self.bar.set_message(state());
        self.bar.set_position(part);
    }
}

impl Drop for Search {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Parts of the work that a planning bar counts.
const PARTS: f64 = 1000.0;

/// Plans with a bar of this heading on standard error, if that is a terminal; the planner moves it.
pub(crate) fn while_planning<T>(heading: &str, plan: impl FnOnce(&mut Progress) -> T) -> T {
    let bar = planning(heading);
    let planned = plan(&mut |part| {
        bar.set_position((part * PARTS) as u64);
        ControlFlow::Continue(())
    });
    bar.finish_and_clear();
    planned
}

/// A planning bar. Its heading may hold the name of a file, and that characters which move a terminal's cursor.
fn planning(heading: &str) -> ProgressBar {
    let bar = ProgressBar::new(PARTS as u64);
    match ProgressStyle::with_template("{bar:40} {msg}: {percent}% planned, {eta} left") {
        Ok(style) => bar.with_style(style).with_message(plain(heading)),
        Err(_) => bar,
    }
}

impl Iterator for Shown {
    type Item = Result<Event, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.events += 1;
        if self.events % 4096 == 0 {
            self.bar.set_position(self.reader.stored_bytes_read());
        }
        self.reader.next()
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_are_one_line_without_control_characters() {
        let name = "\u{1b}[2Jnet\r\n.json";
        assert_eq!(planning(name).message(), " [2Jnet  .json");
        assert_eq!(Search::new(name, 1).bar.prefix(), " [2Jnet  .json");
    }
}
