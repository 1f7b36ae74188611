//! The route of one call: views pass, torch takes composites apart, all else runs under the budget. Some calls also pin
//! tensors.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use super::incoming;
use super::outcome::Outcome;
use super::state::State;
use crate::call::arguments::Class;
use crate::call::func::{Func, Kind};
use crate::call::invocation::Invocation;
use crate::call::record::GradMode;
use crate::ffi::autograd;
use crate::ffi::fastcall::call_one;
use crate::ffi::gil::Attach;
use crate::timeline::MemoryKind;
use crate::tracking::live::LiveId;

impl State {
    /// Runs one call, or says that the caller must run it.
    pub(super) fn dispatch(
        &mut self,
        overload: &Bound<'_, PyAny>,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Outcome> {
        let py = overload.py();
        self.ops += 1;
        self.through_python += 1;
        // Where something fails the call is handed no longer: the next one of its op is another.
        let func = self.described(overload).inspect_err(|_| {
            let name = overload.str().ok();
            name.and_then(|name| incoming::take_handed(&name.to_string_lossy()));
        })?;
        let handed = incoming::take_handed(&func.name);
        self.watch_for_thrashing(py)?;
        self.arity = handed.as_ref().map(|handed| handed.arity);
        let surroundings = handed.as_ref().map(|handed| handed.surroundings);
        self.candidate = handed.and_then(|handed| handed.candidate);
        self.executor.drain_deaths(py)?;
        let call = Invocation {
            func: &func,
            args,
            kwargs,
            surroundings: surroundings.unwrap_or_default(),
        };
        let kind = self.kind_of(&call)?;
        let runs = !matches!(kind, Kind::View | Kind::Composite);
        if !runs && self.has_wrapper(args.as_any())? {
            return Ok(Outcome::Declined);
        }
        let outcome = match kind {
            Kind::View => {
                self.pin_parameters(&call)?;
                self.pin_parts(&call)?;
                Outcome::Done(call.call()?.unbind())
            }
            Kind::Composite => return Ok(Outcome::Redispatch),
            _ => {
                let outcome = self.run(&call);
                self.executor.ended(py, outcome)?
            }
        };
        self.candidate = None;
        self.arity = None;
        if let Outcome::Done(result) = &outcome {
            self.pin_results(&func, result.bind(py))?;
        }
        Ok(outcome)
    }

    /// The treatment of a call.
    fn kind_of(&self, call: &Invocation<'_, '_>) -> PyResult<Kind> {
        match call.func.nested {
            Some(kind) if call.any_nested(&self.executor.internals.any_nested)? => Ok(kind),
            _ => Ok(call.func.kind),
        }
    }

    /// The description of an op, which is made when the op is first seen.
    fn described(&mut self, overload: &Bound<'_, PyAny>) -> PyResult<Arc<Func>> {
        let key = overload.as_ptr() as usize;
        if let Some(func) = self.executor.funcs.get(&key) {
            return Ok(func.clone());
        }
        let describe = self.executor.internals.describe.bind(overload.py());
        let func: Func = describe.call1((overload,))?.extract()?;
        let func = Arc::new(func);
        self.executor.funcs.insert(key, func.clone());
        Ok(func)
    }

    /// Pins the results that something out of the session's sight will read or keep.
    pub(super) fn pin_results(&mut self, func: &Func, result: &Bound<'_, PyAny>) -> PyResult<()> {
        if func.pins_results {
            for tensor in self.flatten(result, 2)?.into_iter().flatten() {
                self.pin_tensor(&tensor)?;
            }
        }
        if func.accumulates && self.is_accumulating(result.py())? {
            self.pin_tensor(result)?;
            self.note_kind(result, MemoryKind::Gradient);
        }
        Ok(())
    }

    /// Whether autograd is leaving a gradient in a leaf on this thread.
    pub(super) fn is_accumulating(&self, gil: impl Attach) -> PyResult<bool> {
        match autograd::accumulating() {
            Some(told) => Ok(told),
            None => gil.attach(|py| {
                let accumulating = self.executor.internals.accumulating.bind(py);
                accumulating.call0()?.is_truthy()
            }),
        }
    }

    /// Whether autograd records ops now.
    pub(super) fn grad_mode(&self, py: Python<'_>) -> PyResult<GradMode> {
        let enabled = self.executor.internals.grad_enabled.bind(py).call0()?;
        Ok(GradMode::of(enabled.is_truthy()?))
    }

    /// Pins parameters that autograd reads. The next optimizer step will write them and every step reads them, so
    /// bringing one back from its random numbers would save nothing that lasts.
    pub(super) fn pin_parameters(&mut self, call: &Invocation<'_, '_>) -> PyResult<()> {
        for value in call.args.iter_borrowed() {
            if self.torch.class_of(&value)? == Class::Parameter
                && self.grad_mode(call.py())? == GradMode::On
            {
                self.set_current(&call.func.name);
                self.pin_tensor(&value)?;
                if let Some(id) = self.live_of(&value) {
                    self.executor.storages.note_parameter(id);
                }
            }
        }
        Ok(())
    }

    /// Whether a tensor subclass that intercepts ops is among positional arguments.
    fn has_wrapper(&mut self, values: &Bound<'_, PyAny>) -> PyResult<bool> {
        for value in values.try_iter()? {
            let value = value?;
            let found = if value.is_exact_instance_of::<PyList>() {
                self.has_wrapper(&value)?
            } else {
                self.torch.class_of(&value)? == Class::Wrapper
            };
            if found {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Pins arguments that a view keeps reading.
    fn pin_parts(&mut self, call: &Invocation<'_, '_>) -> PyResult<()> {
        for &position in &call.func.pins {
            if let Ok(part) = call.args.get_item(position) {
                self.set_current(&call.func.name);
                self.pin_tensor(&part)?;
            }
        }
        Ok(())
    }

    pub(super) fn pin_tensor(&mut self, tensor: &Bound<'_, PyAny>) -> PyResult<()> {
        match self.live_of(tensor) {
            Some(id) => self.executor.pin(tensor.py(), id),
            None => Ok(()),
        }
    }

    /// The live storage of a tensor; `None` for one that is not known, and where the tensor has none of its own.
    pub(super) fn live_of(&self, tensor: &Bound<'_, PyAny>) -> Option<LiveId> {
        let storage = call_one(&self.torch.untyped_storage, tensor).ok()?;
        self.executor.storages.find(&storage)
    }

    /// The tensors of a result in their order, `None` for other values. `expected` is about their number.
    pub(super) fn flatten<'py>(
        &mut self,
        result: &Bound<'py, PyAny>,
        expected: usize,
    ) -> PyResult<Vec<Option<Bound<'py, PyAny>>>> {
        if result.is_none() {
            return Ok(Vec::new());
        }
        if matches!(
            self.torch.class_of(result)?,
            Class::Tensor | Class::Parameter
        ) {
            return Ok(vec![Some(result.clone())]);
        }
        let list = self
            .executor
            .internals
            .flatten
            .bind(result.py())
            .call1((result,))?;
        let mut flat = Vec::with_capacity(expected);
        for item in list.try_iter()? {
            let item = item?;
            flat.push((!item.is_none()).then_some(item));
        }
        Ok(flat)
    }
}
