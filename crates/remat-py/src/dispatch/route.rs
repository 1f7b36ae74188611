//! What the dispatch mode does with one call: views pass, composites are taken apart by torch, all else runs under the
//! budget; and the pins that go with some calls.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::{Outcome, State};
use crate::arguments::Class;
use crate::fastcall::call_one;
use crate::func::{Func, Kind};

impl State {
    pub(super) fn dispatch(
        &mut self,
        py: Python<'_>,
        overload: &Bound<'_, PyAny>,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Outcome> {
        self.ops += 1;
        if self.core.storages.has_deaths() {
            self.core.drain_deaths(py)?;
        }
        let key = overload.as_ptr() as usize;
        let func = match self.core.funcs.get(&key) {
            Some(func) => func.clone(),
            None => {
                let description = self.describe.bind(py).call1((overload,))?;
                let func = Arc::new(Func::from_description(
                    overload,
                    description.cast::<PyDict>()?,
                )?);
                self.core.funcs.insert(key, func.clone());
                func
            }
        };
        let outcome = match func.kind {
            Kind::View => {
                self.pin_parameters(py, &func, args)?;
                Outcome::Done(func.call.bind(py).call(args, kwargs)?.unbind())
            }
            Kind::Composite => return Ok(Outcome::Redispatch),
            _ => self.run(py, &func, args, kwargs)?,
        };
        if func.pins_results {
            if let Outcome::Done(result) = &outcome {
                for tensor in self.flatten(py, result.bind(py), 2)?.into_iter().flatten() {
                    self.pin_tensor(&tensor)?;
                }
            }
        }
        if func.accumulates {
            if let Outcome::Done(result) = &outcome {
                if self.accumulating.bind(py).call0()?.is_truthy()? {
                    self.pin_tensor(result.bind(py))?;
                }
            }
        }
        Ok(outcome)
    }

    /// Parameters that autograd reads are pinned: the next optimizer step will write them, every step reads them, and
    /// bringing one back from its random numbers would save nothing that lasts.
    pub(super) fn pin_parameters(
        &mut self,
        py: Python<'_>,
        func: &Func,
        args: &Bound<'_, PyTuple>,
    ) -> PyResult<()> {
        for value in args.iter_borrowed() {
            if self.torch.class_of(&value)? == Class::Parameter
                && self.grad_enabled.bind(py).call0()?.is_truthy()?
            {
                self.core.current.clear();
                self.core.current.push_str(&func.name);
                self.pin_tensor(&value)?;
            }
        }
        Ok(())
    }

    pub(super) fn pin_tensor(&mut self, tensor: &Bound<'_, PyAny>) -> PyResult<()> {
        if let Ok(storage) = call_one(&self.torch.untyped_storage, tensor) {
            if let Some(id) = self.core.storages.find(&storage) {
                return self.core.pin(tensor.py(), id);
            }
        }
        Ok(())
    }

    pub(super) fn flatten<'py>(
        &mut self,
        py: Python<'py>,
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
        let list = self.core.seam.flatten.bind(py).call1((result,))?;
        let mut flat = Vec::with_capacity(expected);
        for item in list.try_iter()? {
            let item = item?;
            flat.push((!item.is_none()).then_some(item));
        }
        Ok(flat)
    }
}
