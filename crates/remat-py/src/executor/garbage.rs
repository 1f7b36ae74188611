//! Memory that only cyclic garbage of Python's refers to. A model that the program replaced may stay that way, with its
//! parameters, until Python happens to collect: nothing of it can be evicted, and it is not worth a refusal.

use pyo3::prelude::*;

use super::state::Executor;
use crate::ffi::errors::budget_error;
use crate::ffi::gil::Attach;

impl Executor {
    /// Does what may be refused, and does it again if it was and garbage held memory.
    pub fn despite_garbage<T>(
        &mut self,
        py: Python<'_>,
        mut action: impl FnMut(&mut Executor) -> PyResult<T>,
    ) -> PyResult<T> {
        match action(self) {
            Err(e) if e.is_instance(py, &budget_error(py)?) && self.collect_garbage(py)? => {
                action(self)
            }
            done => done,
        }
    }

    /// Has Python collect its garbage. Returns whether memory that is counted went with it.
    ///
    /// Takes as long as `gc.collect()`: a tenth of a second and more in large programs.
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
