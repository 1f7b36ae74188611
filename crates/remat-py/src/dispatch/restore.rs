//! Leaving a budget: every live storage becomes resident and usable.

use pyo3::prelude::*;
use remat_core::PoolId;

use super::State;
use crate::layout::Guard;
use crate::storages::LiveId;

impl State {
    pub(super) fn restore(&mut self, py: Python<'_>) -> PyResult<()> {
        self.counters_at_end
            .get_or_insert(self.core.engine.counters());
        self.core.current = "leaving the budget".into();
        self.core.drain_deaths(py)?;
        for i in 0..self.core.pools.len() {
            // Raising a budget to none cannot fail.
            let _ = self.core.engine.set_budget(PoolId(i as u8), None);
        }
        let mut first_error = None;
        let evicted: Vec<LiveId> = self
            .core
            .storages
            .all()
            .filter(|(_, l)| !l.present)
            .map(|(id, _)| id)
            .collect();
        for id in evicted {
            let Some(live) = self.core.storages.live(id).filter(|l| !l.present) else {
                continue;
            };
            let tensor = live.tensor;
            let done = match self.core.engine.ensure(&[tensor]) {
                Ok(()) => self.core.perform(py),
                Err(e) => Err(self.core.refusal(py, &e)),
            };
            if let Err(e) = done {
                first_error.get_or_insert(e);
            }
        }
        for (_, live) in self.core.storages.all() {
            if live.present {
                self.core.layout.set_guard(py, live.imp, Guard::Down);
            }
        }
        self.knowledge.put_back(py, &self.core.pools);
        if let Some(tracing) = self.core.tracing.take() {
            tracing.finish()?;
        }
        match first_error {
            Some(e) => Err(e),
            None => Ok(()),
        }
    }
}
