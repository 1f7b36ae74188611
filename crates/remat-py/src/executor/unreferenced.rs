//! Unreferenced constants: the program dropped them, and only recorded ops still read them. Their bytes stay for later
//! replays, unless the tensors that were computed from them take no more: then those are pinned instead (banishing, DTR
//! appendix C.5). A gradient that flowed into a running average is such a constant, and the average takes its place. So
//! do the new parameters of a program that makes new tensors of them in each step.

use pyo3::prelude::*;
use remat_core::TensorId;

use super::state::Executor;
use crate::ffi::gil::Attach;
use crate::tracking::buffers::{Buffer, Scratch};
use crate::tracking::live::LiveId;

impl Executor {
    /// Drops unreferenced constants from time to time, before an op.
    pub fn drop_unreferenced_in_time(&mut self, gil: impl Attach) -> PyResult<()> {
        let budget = self.given(self.budget_device);
        let known = self.storages.slots() + self.live_records;
        let constants = &mut self.storages.held_constants;
        if constants.are_to_be_searched(budget, known) {
            gil.attach(|py| self.drop_unreferenced(py))?;
        }
        Ok(())
    }

    /// Drops those unreferenced constants, oldest first, that free most beyond the bytes pinned for them, if they free
    /// at least as much. Returns whether any was dropped.
    pub fn drop_unreferenced(&mut self, py: Python<'_>) -> PyResult<bool> {
        self.storages.held_constants.note_search();
        let unreferenced = self.unreferenced(py)?;
        let tensors: Vec<TensorId> = unreferenced
            .iter()
            .filter_map(|&id| self.storages.live(id).map(|live| live.tensor))
            .collect();
        let plan = self
            .engine
            .plan_banish(&tensors)
            .map_err(|e| self.refusal(py, &e))?;
        if plan.constants == 0 {
            return Ok(false);
        }
        for &tensor in &plan.tensors {
            let sid = self.storage_of(tensor);
            if let Buffer::Live(id) = *self.storages.buffer(sid) {
                if !self.pin_if_possible(py, id)? {
                    return Ok(false);
                }
            }
        }
        for &id in &unreferenced[..plan.constants] {
            // The last record that read it may have gone with a pin, and the constant with it: that is a death below.
            let held = self.storages.live(id).is_some_and(|l| l.hold.is_some());
            if let Some(mut former) = held.then(|| self.storages.forget(id)).flatten() {
                former.leave_elsewhere(); // the bytes go with the reference
                let (tensor, bytes, device) = (former.tensor, former.bytes, former.device);
                let hold = former.hold.take();
                drop(former); // nobody is to hear of its death
                let sid = self.storage_of(tensor);
                if let Some(owner) = hold {
                    let scratch = Scratch {
                        owner,
                        bytes,
                        device,
                    };
                    self.storages.set_buffer(sid, Buffer::Scratch(scratch));
                }
                self.release(py, tensor)?;
            }
        }
        self.drain_deaths(py)?;
        Ok(true)
    }

    /// Constants that have no owner but the session, oldest first.
    fn unreferenced(&mut self, py: Python<'_>) -> PyResult<Vec<LiveId>> {
        let mut unreferenced = Vec::new();
        for (id, live) in self.storages.all() {
            let (Some(hold), None) = (&live.hold, live.outside) else {
                continue;
            };
            if hold.is_sole(py, &self.internals.use_count)? {
                unreferenced.push((live.serial, id));
            }
        }
        unreferenced.sort_unstable();
        Ok(unreferenced.into_iter().map(|(_, id)| id).collect())
    }
}
