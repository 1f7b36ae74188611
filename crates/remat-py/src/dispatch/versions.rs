//! New values of storages, written by in-place ops or where no op declares it.

use pyo3::prelude::*;
use remat_core::{Bytes, Finished, OpSpec, Output, Replay, TensorId};

use super::state::State;
use crate::ffi::gil::Attach;
use crate::tracking::buffers::Buffer;
use crate::tracking::live::LiveId;
use crate::tracking::trace::RanOp;

impl State {
    /// Gives storages new values where no op declares that it writes them (batch normalisation's running statistics,
    /// resizing). Tensors computed from the old values are made independent of them.
    pub(super) fn overwrite(
        &mut self,
        py: Python<'_>,
        name: &str,
        written: &[LiveId],
        workspace: u64,
    ) -> PyResult<()> {
        let mut inputs = Vec::with_capacity(written.len());
        for &id in written {
            self.executor.pin(py, id)?;
            if let Some(live) = self.executor.storages.live(id) {
                inputs.push(live.tensor);
            }
        }
        let outputs: Vec<Output> = (0..inputs.len()).map(|of| Output::InPlace { of }).collect();
        let spec = OpSpec {
            inputs: &inputs,
            outputs: &outputs,
            workspace: Bytes(workspace),
            workspace_device: self.executor.budget_device,
            replay: Replay::Forbidden,
        };
        let op = self.begin(py, &spec)?;
        let made = self.executor.engine.outputs(op).to_vec();
        if let Some(trace) = &mut self.executor.trace {
            trace.op(&RanOp {
                name,
                inputs: &inputs,
                outputs: &outputs,
                made: &made,
                workspace,
                workspace_device: self.executor.budget_device,
                cost: 0,
                replay: Replay::Forbidden,
                sizes: None,
            });
        }
        let report = Finished {
            cost: remat_core::Cost(0),
            bytes: None,
        };
        let finished = self.executor.engine.finish(op, &report);
        self.executor.perform(py)?;
        for (k, &id) in written.iter().enumerate() {
            self.supersede(py, id, made[k])?;
        }
        finished.map_err(|e| self.executor.refusal(py, &e))
    }

    /// Looks again at the values of an op's inputs, where some were overwritten since: statistics may share a storage
    /// with what the op reads.
    pub(super) fn look_again(&self, lives: &[LiveId], values: &mut [TensorId]) {
        for (value, &id) in values.iter_mut().zip(lives) {
            if let Some(live) = self.executor.storages.live(id) {
                *value = live.tensor;
            }
        }
    }

    /// Gives a live storage a new value.
    pub(super) fn supersede(
        &mut self,
        gil: impl Attach,
        id: LiveId,
        tensor: TensorId,
    ) -> PyResult<()> {
        let Some(live) = self.executor.storages.live_mut(id) else {
            return Ok(());
        };
        let old = std::mem::replace(&mut live.tensor, tensor);
        if old == tensor {
            return Ok(());
        }
        let (old_sid, new_sid) = (
            self.executor.storage_of(old),
            self.executor.storage_of(tensor),
        );
        self.executor.storages.set_buffer(old_sid, Buffer::Empty);
        self.executor.storages.set_buffer(new_sid, Buffer::Live(id));
        self.executor.release(gil, old)
    }
}
