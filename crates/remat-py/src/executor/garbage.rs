//! Memory that only cyclic garbage of Python's refers to. A model that the program replaced may stay that way, with its
//! parameters, until Python happens to collect: nothing of it can be evicted, and it is not worth a refusal.

use pyo3::prelude::*;
use remat_core::{DeviceId, OpSpec, StorageId};

use super::accelerators::fresh;
use super::state::Executor;
use crate::ffi::errors::budget_error;
use crate::ffi::gil::Attach;

impl Executor {
    /// Does what takes so many bytes of a device, and does it again if it was refused and garbage held memory.
    pub fn despite_garbage<T>(
        &mut self,
        py: Python<'_>,
        (bytes, device): (u64, DeviceId),
        mut action: impl FnMut(&mut Executor) -> PyResult<T>,
    ) -> PyResult<T> {
        match action(self) {
            Err(e)
                if e.is_instance(py, &budget_error(py)?)
                    && self.would_fit_alone(bytes, device)
                    && self.collect_garbage(py)? =>
            {
                action(self)
            }
            done => done,
        }
    }

    /// Whether what an op reads, makes and takes as workspace is within the budget. If it is not, garbage is not to
    /// blame for its refusal.
    pub fn op_would_fit_alone(&self, spec: &OpSpec<'_>) -> bool {
        let inputs = spec.inputs.iter();
        let mut storages: Vec<StorageId> = inputs.map(|&input| self.storage_of(input)).collect();
        storages.sort_unstable();
        storages.dedup();
        let read = storages.iter().map(|&storage| self.engine.bytes(storage).0);
        let bytes = read
            .chain(fresh(spec))
            .fold(spec.workspace.0, u64::saturating_add);
        self.would_fit_alone(bytes, spec.workspace_device)
    }

    fn would_fit_alone(&self, bytes: u64, device: DeviceId) -> bool {
        let budget = self.engine.budget(device);
        budget.is_none_or(|budget| bytes <= budget.0)
    }

    /// Has Python collect its garbage. Returns whether memory that is counted went with it.
    ///
    /// Takes as long as `gc.collect()`, which goes through all objects of the program.
    #[cold]
    pub fn collect_garbage(&mut self, gil: impl Attach) -> PyResult<bool> {
        gil.attach(|py| py.import("gc")?.call_method0("collect").map(drop))?;
        let unwatched = self.unwatched.bytes;
        self.count_unwatched();
        let freed = self.storages.has_deaths() || self.unwatched.bytes < unwatched;
        self.drain_deaths(gil)?;
        Ok(freed)
    }
}
