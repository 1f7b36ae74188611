//! Progress of planning.

use crate::chain::model::error::PlanError;
use std::ops::ControlFlow;

/// A callback that is told now and then which part of the work is done, from 0 to 1; planning stops where it breaks.
pub type Progress<'a> = dyn FnMut(f64) -> ControlFlow<()> + 'a;

/// Reports progress as states are done.
pub(crate) struct Pace<'p, 'a> {
    progress: &'p mut Progress<'a>,
    states: usize,
    done: usize,
}

impl<'p, 'a> Pace<'p, 'a> {
    /// States between two reports.
    const STRIDE: usize = 512;

    pub(crate) fn new(progress: &'p mut Progress<'a>, states: usize) -> Self {
        Pace {
            progress,
            states,
            done: 0,
        }
    }

    pub(crate) fn step(&mut self) -> Result<(), PlanError> {
        self.done += 1;
        if self.done % Self::STRIDE != 0 {
            return Ok(());
        }
        match (self.progress)(self.done as f64 / self.states as f64) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(PlanError::Interrupted),
        }
    }
}
