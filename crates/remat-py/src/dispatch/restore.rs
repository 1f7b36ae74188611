//! Leaving a budget: every live storage becomes resident and usable.

use pyo3::prelude::*;
use remat_core::{DeviceId, Error, TensorId};

use super::state::State;
use crate::ffi::layout::Guard;
use crate::tracking::live::{LiveId, UNTOLD};

impl State {
    /// Makes every live storage resident and usable, and ends the session's decisions. Whatever fails, the storages are
    /// none that a later run knows.
    pub(super) fn restore(&mut self, py: Python<'_>) -> PyResult<()> {
        let outcome = self.restore_all(py);
        if outcome.is_ok() {
            self.executor.storages.let_go();
        }
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
        if self.executor.arena.is_some() {
            self.lift_budgets();
        }
        let first_error = self.bring_back_all(py);
        self.lift_budgets();
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

    /// Brings back every evicted storage that can be brought back, and pins all: what only replays need goes.
    ///
    /// # Errors
    /// The first error met.
    fn bring_back_all(&mut self, py: Python<'_>) -> PyResult<()> {
        let mut outcome = Ok(());
        let mut ids: Vec<(bool, u64, LiveId)> = self
            .executor
            .storages
            .all()
            .filter(|(_, live)| live.tensor != UNTOLD)
            .map(|(id, live)| (!live.present, live.serial, id))
            .collect();
        // Those that are there take no room; the others come back from those made before them.
        ids.sort_unstable();
        for (_, _, id) in ids {
            // The replays before may have let Python collect garbage.
            outcome = outcome.and(self.executor.drain_deaths(py));
            if let Some(live) = self.executor.storages.live(id) {
                let tensor = live.tensor;
                outcome = outcome.and(self.bring_back(py, tensor));
            }
        }
        outcome
    }

    /// Makes a tensor resident for good: within the budget if that can be, or else within the smallest one that does.
    fn bring_back(&mut self, py: Python<'_>, tensor: TensorId) -> PyResult<()> {
        let mut lifted = false;
        while let Err(error) = self.executor.engine.pin(tensor) {
            match error {
                Error::Budget {
                    device,
                    budget,
                    smallest,
                    ..
                } if smallest > budget => {
                    // Raising a budget cannot fail.
                    let _ = self.executor.engine.set_budget(device, Some(smallest));
                }
                error if lifted => return Err(self.executor.refusal(py, &error)),
                _ => {
                    lifted = true;
                    self.lift_budgets();
                }
            }
        }
        self.executor.perform(py)?;
        self.executor.collect();
        Ok(())
    }

    fn lift_budgets(&mut self) {
        for device in 0..self.executor.devices.len() {
            // Raising a budget to none cannot fail.
            let _ = (self.executor.engine).set_budget(DeviceId(device as u8), None);
        }
    }
}
