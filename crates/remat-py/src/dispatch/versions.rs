//! Storages that get new values: by in-place ops, and where no op declares it.

use pyo3::prelude::*;
use remat_core::{Bytes, Finished, OpSpec, Output, Replay, TensorId};

use super::State;
use crate::storages::{Buffer, LiveId};

impl State {
    /// Storages get new values where no op that declares it writes them (batch normalisation's running statistics,
    /// resizing): what was computed from the old values is made independent of them.
    pub(super) fn overwrite(
        &mut self,
        py: Python<'_>,
        name: &str,
        written: &[LiveId],
        workspace: u64,
    ) -> PyResult<()> {
        let mut inputs = Vec::with_capacity(written.len());
        for &id in written {
            self.core.pin(py, id)?;
            if let Some(live) = self.core.storages.live(id) {
                inputs.push(live.tensor);
            }
        }
        let outputs: Vec<Output> = (0..inputs.len()).map(|of| Output::InPlace { of }).collect();
        let spec = OpSpec {
            inputs: &inputs,
            outputs: &outputs,
            workspace: Bytes(workspace),
            workspace_pool: self.core.budget_pool,
            replay: Replay::Forbidden,
        };
        let op = self.begin(py, &spec)?;
        let made = self.core.engine.outputs(op).to_vec();
        if let Some(tracing) = &mut self.core.tracing {
            tracing.op(
                name,
                &inputs,
                &outputs,
                &made,
                workspace,
                self.core.budget_pool,
                0,
                false,
                None,
            )?;
        }
        self.core
            .engine
            .finish(
                op,
                &Finished {
                    cost: remat_core::Cost(0),
                    bytes: None,
                },
            )
            .map_err(|e| self.core.refusal(py, &e))?;
        self.core.perform(py)?;
        for (k, &id) in written.iter().enumerate() {
            self.supersede(py, id, made[k])?;
        }
        Ok(())
    }

    /// A live storage has a new value.
    pub(super) fn supersede(
        &mut self,
        py: Python<'_>,
        id: LiveId,
        tensor: TensorId,
    ) -> PyResult<()> {
        let Some(live) = self.core.storages.live_mut(id) else {
            return Ok(());
        };
        let old = std::mem::replace(&mut live.tensor, tensor);
        if old == tensor {
            return Ok(());
        }
        let (old_sid, new_sid) = (
            self.core.engine.storage(old),
            self.core.engine.storage(tensor),
        );
        self.core.storages.set_buffer(old_sid, Buffer::Empty);
        self.core.storages.set_buffer(new_sid, Buffer::Live(id));
        self.core.release(py, old)
    }
}
