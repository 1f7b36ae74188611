//! A call without its storages and without the numbers that differ from call to call.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, OnceLock};

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use smallvec::SmallVec;

use super::arguments::Walk;
use super::func::Func;
use super::stacked::Stacked;
use super::template::{Dispatched, Template};
use super::view::{Arg, Number, View};
use crate::ffi::dispatcher::Torch;
use crate::ffi::gil::Object;

/// All calls of one form are recorded by the same description of their arguments.
pub struct Form {
    /// Address of the overload, key into the table of described ops.
    pub func: usize,
    /// Positional arguments.
    pub args: Vec<Arg>,
    /// Keyword arguments.
    pub kwargs: Vec<(Object, Arg)>,
    /// Views of the input storages.
    pub views: Vec<View>,
    /// Inputs that are written, as indices into the op's inputs, in the order of the engine's in-place outputs.
    pub written: SmallVec<[u32; 4]>,
    /// For each flattened result the index into the op's outputs, if it has a storage of its own.
    pub results: SmallVec<[Option<u32>; 2]>,
    /// For each view its input.
    pub inputs: Vec<u32>,
    /// The arguments as the dispatcher takes them, once a call came to it; `None` in it if they are unusual.
    pub template: OnceLock<Option<Mutex<Template>>>,
    /// See [`kind`](Self::kind).
    pub kind: OnceLock<u64>,
}

impl Form {
    /// The form of a call whose arguments were walked; takes them over.
    pub fn of(func: &Func, walked: &mut Walk, results: Vec<Option<u32>>) -> Form {
        Form {
            inputs: walked.views.iter().map(|view| view.input).collect(),
            template: OnceLock::new(),
            kind: OnceLock::new(),
            func: func.overload.as_ptr() as usize,
            args: std::mem::take(&mut walked.args),
            kwargs: std::mem::take(&mut walked.kwargs),
            views: std::mem::take(&mut walked.views),
            written: SmallVec::from_slice(&walked.written),
            results: SmallVec::from_slice(&results),
        }
    }

    /// A hash of the function and the layouts of what its calls read; see [`kind_of`].
    pub fn kind(&self) -> u64 {
        *self.kind.get_or_init(|| kind_of(self.func, &self.views))
    }

    /// Makes the template of the form, so that replays need no Python, if the arguments are of usual kinds.
    ///
    /// # Safety
    /// As for [`Template::of`]; the call is of this form.
    pub unsafe fn make_template(
        &self,
        py: Python<'_>,
        torch: &Torch,
        call: &Dispatched<'_>,
        stacked: &Stacked,
    ) {
        let absent = |position| matches!(self.args.get(position), Some(Arg::Absent));
        self.template.get_or_init(|| {
            // SAFETY: as the caller promises.
            let made = unsafe { Template::of(py, torch, call, stacked, absent) };
            made.filter(|made| made.tensors() == self.views.len())
                .map(Mutex::new)
        });
    }

    /// Builds the positional arguments.
    pub fn build_args<'py>(
        &self,
        py: Python<'py>,
        tensors: &[Bound<'py, PyAny>],
        numbers: &[Number],
    ) -> PyResult<Bound<'py, PyTuple>> {
        let args = self.args.iter().map(|a| a.build(py, tensors, numbers));
        PyTuple::new(py, args.collect::<PyResult<Vec<_>>>()?)
    }

    /// Builds the keyword arguments.
    pub fn build_kwargs<'py>(
        &self,
        py: Python<'py>,
        tensors: &[Bound<'py, PyAny>],
        numbers: &[Number],
    ) -> PyResult<Bound<'py, PyDict>> {
        let kwargs = PyDict::new(py);
        for (name, value) in &self.kwargs {
            kwargs.set_item(&**name, value.build(py, tensors, numbers)?)?;
        }
        Ok(kwargs)
    }
}

/// A hash of a function and the layouts of what a call of it reads: a layer norm of a transposed tensor copies it
/// first, into as many bytes as its result takes.
pub fn kind_of(func: usize, views: &[View]) -> u64 {
    let mut hasher = DefaultHasher::new();
    func.hash(&mut hasher);
    for view in views {
        view.geometry.hash(&mut hasher);
    }
    hasher.finish()
}
