//! The smallest budget of a recorded run, for Python.

use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use remat_core::Bytes;
use remat_sim::{FloorSearch, Program};
use remat_trace::{Event, TraceError};

use crate::executor::STEP_KNOWN;
use crate::ffi::errors::value_error;
use crate::tracking::slack::with_slack;

/// A floor is told to one part in so many of the memory without a limit.
const EXACTNESS: u64 = 512;

/// One part in so many is added: a run takes other times than those tried, and so evicts otherwise.
const BESIDE: u64 = 64;

/// Bytes beside what was recorded, for numbers that another run makes tensors of at other times.
const NUMBERS: u64 = 4096;

/// The run in a trace, up to the step that takes most where one was known.
fn until_known(path: &Path) -> Result<Program, TraceError> {
    let events: Vec<Event> = remat_trace::open(path)?.collect::<Result<_, _>>()?;
    let known = |event: &Event| matches!(event, Event::Mark { name } if name == STEP_KNOWN);
    let end = events.iter().rposition(known).unwrap_or(events.len());
    Ok(events[..end].iter().collect())
}

/// The floor of a run that was recorded in a file: the smallest budget below which every run of it is refused, and the
/// smallest in which one was found to get through by a policy while recomputing took at most `thrash_limit` times as
/// long as the run's own ops; `None` if that is more than its memory without a limit.
///
/// # Errors
/// `ValueError` for a file that is no trace.
#[pyfunction]
pub fn find_floor(
    py: Python<'_>,
    path: PathBuf,
    policy: &str,
    thrash_limit: f64,
) -> PyResult<(u64, Option<u64>)> {
    let policy = policy.parse().map_err(value_error)?;
    let found = py.detach(|| -> Result<_, String> {
        let program = until_known(&path).map_err(|e| e.to_string())?;
        let base = program.base().map_err(|e| e.to_string())?;
        let search = FloorSearch {
            policy,
            within: Bytes(base.memory.0 / EXACTNESS),
            thrash_limit,
        };
        program.floor(&base, search).map_err(|e| e.to_string())
    });
    let floor = found.map_err(value_error)?;
    let works = floor
        .works
        .map(|bytes| with_slack(bytes.0 + bytes.0 / BESIDE + NUMBERS));
    Ok((with_slack(floor.needed.0), works))
}
