//! The inputs of a call of a known form, as they lie on torch's stack.

use pyo3::prelude::*;
use remat_core::TensorId;
use smallvec::SmallVec;

use super::forms::Known;
use super::running::Inputs;
use super::state::State;
use crate::call::arguments::{Class, Registry, Resolved};
use crate::call::arity::Arity;
use crate::call::stacked::{Stacked, keeps_tensors};
use crate::ffi::boxed::{Item, Value};
use crate::ffi::dispatcher::Torch;
use crate::ffi::fastcall::call_one;
use crate::ffi::gil::Attach;
use crate::tracking::live::LiveId;

/// Whether a tensor may be a parameter, as far as can be told without Python: that is a class of Python's, and a leaf.
///
/// # Safety
/// The value is a tensor and alive.
unsafe fn may_be_parameter(torch: &Torch, value: &Value) -> bool {
    // SAFETY: as the caller promises.
    unsafe {
        let Item::Tensor(tensor) = torch.boxed.read(value) else {
            return false;
        };
        tensor.has_object(torch.boxed) && torch.dispatcher.is_leaf(value)
    }
}

/// Whether autograd records a call, as far as its inputs tell that are no leaves.
///
/// # Safety
/// The values that `stacked` names are alive, on the stack of the call.
pub(super) unsafe fn records(torch: &Torch, stacked: &Stacked) -> bool {
    let mut tensors = stacked.tensors.iter();
    // SAFETY: as the caller promises.
    tensors.any(|&tensor| unsafe { !torch.dispatcher.is_leaf(&*tensor) })
}

impl State {
    /// Pins the parameters among the arguments of a call that autograd records. A storage is asked once.
    ///
    /// # Safety
    /// The values that `stacked` names are alive, on the stack of the call.
    pub(super) unsafe fn pin_parameters_of(
        &mut self,
        gil: impl Attach,
        torch: &Torch,
        stacked: &Stacked,
        known: &Known,
        lives: &[LiveId],
    ) -> PyResult<()> {
        for (&id, &at) in lives.iter().zip(&known.roles.inputs) {
            let live = self.executor.storages.live_mut(id);
            if live.is_none_or(|live| std::mem::replace(&mut live.classified, true)) {
                continue;
            }
            let tensor = stacked.tensors[at as usize];
            // SAFETY: the caller promises that the value is alive.
            if !unsafe { may_be_parameter(torch, &*tensor) } {
                continue;
            }
            gil.attach(|py| {
                // SAFETY: as above.
                let object = unsafe { torch.dispatcher.wrap(py, &*tensor)? };
                if self.torch.class_of(&object)? == Class::Parameter {
                    self.executor.pin(py, id)?;
                    self.executor.storages.note_parameter(id);
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// The inputs of a call; `None` where Python has to look at them. Storages that are new become constants.
    ///
    /// # Safety
    /// The values that `stacked` names are alive, on the stack of the call.
    pub(super) unsafe fn inputs_of(
        &mut self,
        gil: impl Attach,
        torch: &Torch,
        stacked: &Stacked,
        known: &Known,
    ) -> PyResult<Option<Inputs>> {
        let roles = &known.roles;
        for &at in &roles.updated {
            // SAFETY: as the caller promises.
            if unsafe { self.resolve_at(gil, torch, stacked, at)? }.is_none() {
                return Ok(None);
            }
        }
        let mut inputs = std::mem::take(&mut self.buffers.inputs);
        inputs.clear();
        for &at in &roles.inputs {
            // SAFETY: as the caller promises.
            let resolved = unsafe { self.resolve_at(gil, torch, stacked, at)? };
            let Some((id, tensor)) = resolved else {
                return Ok(None);
            };
            if inputs.tensors.contains(&tensor) {
                return Ok(None);
            }
            self.executor.storages.note_read(id);
            if !keeps_tensors() {
                let live = self.executor.storages.live(id);
                let kept = live.map(|live| live.keep(gil)).transpose()?.flatten();
                let Some(kept) = kept else { return Ok(None) };
                inputs.kept.push(kept);
            }
            inputs.tensors.push(tensor);
            inputs.lives.push(id);
        }
        Ok(Some(inputs))
    }

    /// The live storage of an argument. One that is new becomes a constant.
    ///
    /// # Safety
    /// The values that `stacked` names are alive, on the stack of the call.
    pub(super) unsafe fn resolve_at(
        &mut self,
        gil: impl Attach,
        torch: &Torch,
        stacked: &Stacked,
        at: u32,
    ) -> PyResult<Option<(LiveId, TensorId)>> {
        let storage = stacked.storages[at as usize];
        if let Some(found) = self.executor.storages.find_at(storage) {
            return Ok(Some(found));
        }
        let tensor = stacked.tensors[at as usize];
        gil.attach(|py| {
            // SAFETY: the caller promises that the value is alive.
            let tensor = unsafe { torch.dispatcher.wrap(py, &*tensor)? };
            let object = call_one(&self.torch.untyped_storage, &tensor)?;
            match self.executor.resolve(&object)? {
                Resolved::Live(id, tensor) => Ok(Some((id, tensor))),
                Resolved::Hollow | Resolved::Elsewhere => Ok(None),
            }
        })
    }

    /// Counts the entries that decide what a call makes, after bringing back what was evicted. Returns whether it
    /// could.
    ///
    /// # Safety
    /// The values that `stacked` names are alive, on the stack of the call.
    pub(super) unsafe fn count_entries(
        &mut self,
        gil: impl Attach,
        torch: &Torch,
        arity: &Arity,
        stacked: &mut Stacked,
    ) -> PyResult<bool> {
        self.executor.drain_deaths(gil)?;
        let picked: SmallVec<[u32; 1]> = stacked.picked().collect();
        for at in picked {
            // SAFETY: as the caller promises.
            let resolved = unsafe { self.resolve_at(gil, torch, stacked, at)? };
            let live = resolved.and_then(|(id, _)| self.executor.storages.live(id));
            let Some(live) = live.filter(|live| self.is_main_memory(live.device, &[])) else {
                return Ok(false);
            };
            if !live.present {
                let tensor = live.tensor;
                let placed = self.executor.arena.is_some();
                if placed || self.executor.engine.ensure(&[tensor]).is_err() {
                    return Ok(false); // Python finds room, or refuses the call
                }
                if let Some(trace) = &mut self.executor.trace {
                    trace.ensure(&[tensor]);
                }
                self.executor.perform(gil)?;
            }
        }
        // SAFETY: as the caller promises. All lie in main memory, and under the lock of the session nothing is evicted.
        Ok(unsafe { stacked.count(torch, arity) })
    }
}
