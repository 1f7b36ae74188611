//! Calls of a known form that are not recorded, because the run needs far less than its budget: nothing is evicted
//! there, so no record would ever be replayed. Their results are constants of the engine. Bytes are counted as always.
//!
//! A run is recorded from its first op on that would take more than three fifths of the budget. What it made before
//! stays until the program drops it, like all constants.

use pyo3::prelude::*;
use remat_core::{Output, StorageId};

use super::forms::Known;
use super::known::{for_each_result, wrap_result};
use super::state::State;
use crate::call::arguments::Registry;
use crate::call::record::GradMode;
use crate::call::stacked::Stacked;
use crate::ffi::boxed::{storage_bytes, Value};
use crate::ffi::dispatcher::Torch;
use crate::ffi::fastcall::call_one;
use crate::ffi::gil::Attach;
use crate::tracking::storages::{Contents, UNTOLD};

/// A run is recorded once it needs more than so many fifths of the budget.
const FIFTHS: u64 = 3;

impl State {
    /// Whether a call of a known form needs no record: there is no other record, and the run never needed more than
    /// three fifths of the budget, this call included.
    pub(super) fn needs_no_record(&self, known: &Known) -> bool {
        let executor = &self.executor;
        let device = executor.budget_device;
        let unseen = executor.trace.is_none() && executor.storages.timeline.is_none();
        if !unseen || self.ops < self.always_recorded || !executor.engine.is_idle() {
            return false;
        }
        let Some(budget) = executor.engine.budget(device) else {
            return false;
        };
        let signature = &known.signature;
        if signature.workspace_device != device || !self.is_main_memory(device, &known.outputs) {
            return false;
        }
        let fresh = known.outputs.iter().map(|output| match *output {
            Output::Fresh { bytes, .. } => bytes.0,
            _ => 0,
        });
        let taken = fresh.sum::<u64>().saturating_add(signature.room().0);
        let ledger = &executor.ledger;
        let most = ledger
            .peak(device)
            .max(ledger.used(device).saturating_add(taken));
        most <= budget.0 / 5 * FIFTHS
    }

    /// Lets a call run without a record; false if it has to go through Python.
    ///
    /// # Safety
    /// The values that `stacked` names are alive, on the stack of the call.
    pub(super) unsafe fn begin_unrecorded(
        &mut self,
        gil: impl Attach,
        torch: &Torch,
        stacked: &Stacked,
        known: &Known,
    ) -> PyResult<bool> {
        if !known.uses_statistics_alike(&stacked.numbers) {
            return Ok(false);
        }
        let device = self.executor.budget_device;
        let used = self.executor.ledger.used(device);
        for &at in &known.roles.updated {
            // SAFETY: as the caller promises.
            if unsafe { self.resolve_at(gil, torch, stacked, at)? }.is_none() {
                return Ok(false);
            }
        }
        for (index, &at) in (0..).zip(&known.roles.inputs) {
            // SAFETY: as the caller promises.
            let Some((id, _)) = (unsafe { self.resolve_at(gil, torch, stacked, at)? }) else {
                return Ok(false);
            };
            let Some(live) = self.executor.storages.live_mut(id) else {
                return Ok(false);
            };
            if (live.outside.is_some() || live.freed) && known.form.written.contains(&index) {
                return Ok(false);
            }
            live.blank = false;
        }
        // An input may be the first view of much memory that was made out of the session's sight.
        if self.executor.ledger.used(device) != used && !self.needs_no_record(known) {
            return Ok(false);
        }
        self.ops += 1;
        if known.grad == GradMode::On {
            self.executor.storages.note_forward();
        }
        Ok(true)
    }

    /// Takes in the results of a call that ran without a record: they are constants.
    ///
    /// # Safety
    /// The results are alive, on the stack of the call that returned, and so are the tensors that it wrote to.
    pub(super) unsafe fn finish_unrecorded(
        &mut self,
        gil: impl Attach,
        torch: &Torch,
        known: &Known,
        results: &[Value],
        stacked: &Stacked,
    ) -> PyResult<()> {
        let mut fresh = std::mem::take(&mut self.buffers.fresh);
        // SAFETY: as the caller promises.
        unsafe { self.sort_fresh(gil, torch, known, results, &mut fresh) };
        if !fresh.usual {
            self.known.remove(&stacked.key);
            self.buffers.fresh = fresh;
            // SAFETY: as the caller promises.
            return gil.attach(|py| unsafe { self.adopt_results(py, torch, results) });
        }
        for storage in &fresh.storages {
            let output = storage.output as usize;
            let Output::Fresh { device, .. } = known.outputs[output] else {
                continue;
            };
            let bytes = fresh.sizes[output].0;
            self.executor.ledger.add(device, bytes);
            let contents = Contents {
                tensor: UNTOLD,
                sid: StorageId(u32::MAX),
                bytes,
                device,
            };
            // SAFETY: as the caller promises: the result, on the stack, owns the storage.
            unsafe { self.insert_result(gil, torch, results, storage, contents)? };
        }
        self.buffers.fresh = fresh;
        let signature = &known.signature;
        let (device, workspace) = (signature.workspace_device, signature.workspace.0);
        self.executor.ledger.spike(device, workspace);
        for &input in &known.form.written {
            let storage = stacked.storages[known.roles.inputs[input as usize] as usize];
            let Some((id, _)) = self.executor.storages.find_at(storage) else {
                continue;
            };
            let counted = self.executor.storages.live(id).map(|live| live.bytes);
            // SAFETY: as the caller promises, a tensor that is alive owns the storage.
            let bytes = unsafe { storage_bytes(torch.boxed, storage) };
            if counted.is_some_and(|counted| counted != bytes) {
                self.executor.tell_untold();
                gil.attach(|py| self.check_size(py, id))?;
            }
        }
        Ok(())
    }

    /// Takes in results that are not as the form says, like tensors that were made out of the session's sight.
    ///
    /// # Safety
    /// The results are alive, on the stack of the call that returned.
    unsafe fn adopt_results(
        &mut self,
        py: Python<'_>,
        torch: &Torch,
        results: &[Value],
    ) -> PyResult<()> {
        self.executor.tell_untold();
        let mut count = 0;
        // SAFETY: as the caller promises.
        unsafe { for_each_result(torch, results, &mut |_, _| count += 1) };
        for place in 0..count {
            // SAFETY: as the caller promises.
            let tensor = unsafe { wrap_result(py, torch, results, place)? };
            if !tensor.is_none() {
                if let Ok(storage) = call_one(&self.torch.untyped_storage, &tensor) {
                    self.executor.resolve(&storage)?;
                }
            }
        }
        Ok(())
    }
}
