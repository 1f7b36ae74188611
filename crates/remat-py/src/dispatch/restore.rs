//! Leaving a budget: every live storage becomes resident and usable.

use pyo3::prelude::*;
use remat_core::DeviceId;

use super::state::State;
use crate::ffi::layout::Guard;
use crate::tracking::live::LiveId;

impl State {
    /// Makes every live storage resident and usable, and ends the session's decisions. Whatever fails, the storages are
    /// none that a later run knows.
    pub(super) fn restore(&mut self, py: Python<'_>) -> PyResult<()> {
        let outcome = self.restore_all(py);
        self.executor.storages.leave();
        outcome
    }

    fn restore_all(&mut self, py: Python<'_>) -> PyResult<()> {
        self.counters_at_end
            .get_or_insert(self.executor.engine.counters());
        self.set_current("leaving the budget");
        if self.executor.storages.all().any(|(_, live)| !live.present) {
            // Cyclic garbage is not worth being brought back.
            self.executor.collect_garbage(py)?;
        }
        self.executor.drain_deaths(py)?;
        for i in 0..self.executor.devices.len() {
            // Raising a budget to none cannot fail.
            let _ = self.executor.engine.set_budget(DeviceId(i as u8), None);
        }
        let first_error = self.bring_back_all(py);
        let layout = self.executor.internals.layout;
        for (_, live) in self.executor.storages.alive(py) {
            if live.present {
                // SAFETY: the storage is not dying, and this loop does not release the GIL. It is present, so it has as
                // many bytes as its size says.
                unsafe { layout.set_guard(py, live.imp, Guard::Down) };
            }
        }
        self.knowledge.put_back(py, &self.executor.devices);
        if let Some(trace) = self.executor.trace.take() {
            trace.finish()?;
        }
        first_error
    }

    /// Brings back every evicted storage that can be brought back.
    ///
    /// # Errors
    /// The first error met.
    fn bring_back_all(&mut self, py: Python<'_>) -> PyResult<()> {
        let mut outcome = Ok(());
        let evicted: Vec<LiveId> = self
            .executor
            .storages
            .all()
            .filter(|(_, l)| !l.present)
            .map(|(id, _)| id)
            .collect();
        for id in evicted {
            // The replays before may have let Python collect garbage.
            outcome = outcome.and(self.executor.drain_deaths(py));
            let Some(live) = self.executor.storages.live(id).filter(|l| !l.present) else {
                continue;
            };
            let tensor = live.tensor;
            let done = match self.executor.engine.ensure(&[tensor]) {
                Ok(()) => self.executor.perform(py),
                Err(e) => Err(self.executor.refusal(py, &e)),
            };
            outcome = outcome.and(done);
        }
        outcome
    }
}
