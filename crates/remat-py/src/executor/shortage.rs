//! Requests for memory, and all that is tried before one is refused.

use pyo3::prelude::*;
use remat_core::{Engine, Error, OpSpec, Replay, TensorId};

use super::state::Executor;
use crate::ffi::gil::Attach;

impl Executor {
    /// Asks the engine for something that takes memory. Where it refuses, it is asked again after constants went that
    /// nothing refers to, what is kept back of the budget was lent, and, if the memory that is asked for
    /// `would_fit_alone`, Python's garbage was collected.
    pub fn ask<T>(
        &mut self,
        gil: impl Attach,
        would_fit_alone: impl FnOnce(&Executor) -> bool,
        mut ask: impl FnMut(&mut Engine) -> Result<T, Error>,
    ) -> PyResult<T> {
        let mut answer = ask(&mut self.engine);
        if matches!(answer, Err(Error::Budget { .. }))
            && gil.attach(|py| self.drop_unreferenced(py))?
        {
            answer = ask(&mut self.engine);
        }
        if answer.as_ref().is_err_and(|e| self.lend_slack(e)) {
            answer = ask(&mut self.engine);
        }
        if matches!(answer, Err(Error::Budget { .. }))
            && would_fit_alone(self)
            && self.collect_garbage(gil)?
        {
            answer = ask(&mut self.engine);
        }
        answer.map_err(|e| self.refusal(gil, &e))
    }

    /// Brings tensors back that an op is about to read, all at once.
    pub fn bring_back(&mut self, gil: impl Attach, tensors: &[TensorId]) -> PyResult<()> {
        if tensors.iter().all(|&tensor| self.engine.is_defined(tensor)) {
            return Ok(());
        }
        self.drain_deaths(gil)?;
        let read = OpSpec {
            inputs: tensors,
            outputs: &[],
            workspace: Default::default(),
            workspace_device: self.budget_device,
            replay: Replay::Forbidden,
        };
        let would_fit_alone = |executor: &Executor| executor.op_would_fit_alone(&read);
        self.ask(gil, would_fit_alone, |engine| engine.ensure(tensors))?;
        if let Some(trace) = &mut self.trace {
            trace.ensure(tensors);
        }
        self.perform(gil)
    }
}
