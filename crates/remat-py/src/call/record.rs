//! An op as it was called: enough to call it again, and nothing that keeps a tensor alive.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use remat_core::DeviceId;

use super::arguments::Walk;
use super::func::Func;
use super::global_state::StateNumber;
use super::signature::Signature;
use super::view::{Arg, View};
use crate::tracking::storages::LiveId;

/// A storage that a record keeps from being freed. Ids are used again; serial numbers are not.
#[derive(Clone, Copy, Debug)]
pub struct Hold {
    /// Its index in the table.
    pub id: LiveId,
    /// Its serial number.
    pub serial: u64,
}

/// Whether autograd records ops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GradMode {
    /// It does.
    On,
    /// It does not.
    Off,
}

impl GradMode {
    /// The mode, from Python's boolean.
    pub fn of(on: bool) -> GradMode {
        if on {
            GradMode::On
        } else {
            GradMode::Off
        }
    }
}

/// The circumstances of a call, beside its arguments.
pub struct Context {
    /// The grad mode. A few kernels return more when it is on.
    pub grad: GradMode,
    /// The settings of process and thread.
    pub state: StateNumber,
    /// State of the random generators before the op drew from them.
    pub rng: Option<Py<PyAny>>,
}

/// A recorded call.
pub struct Record {
    /// Address of the overload, key into the table of described ops.
    pub func: usize,
    /// Positional arguments.
    pub args: Vec<Arg>,
    /// Keyword arguments.
    pub kwargs: Vec<(Py<PyAny>, Arg)>,
    /// Views of the input storages.
    pub views: Vec<View>,
    /// Inputs that are written, as indices into the op's inputs, in the order of the engine's in-place outputs.
    pub written: Vec<u32>,
    /// For each flattened result the index into the op's outputs, if it has a storage of its own.
    pub results: Vec<Option<u32>>,
    /// Size and device of the blank storage, if a view is of one.
    pub blank: Option<(u64, DeviceId)>,
    /// The circumstances under which the replay runs.
    pub context: Context,
    /// Bytes that it needs while it runs, beyond inputs and outputs.
    pub workspace: u64,
    /// The device of the workspace.
    pub workspace_device: DeviceId,
    /// Storages of constants that this record keeps from being freed.
    pub holds: Vec<Hold>,
}

impl Record {
    /// The record of a call whose arguments were walked; takes them over. The caller fills in the results.
    pub fn of(func: &Func, walked: &mut Walk, signature: &Signature, context: Context) -> Record {
        Record {
            func: func.overload.as_ptr() as usize,
            args: std::mem::take(&mut walked.args),
            kwargs: std::mem::take(&mut walked.kwargs),
            views: std::mem::take(&mut walked.views),
            written: std::mem::take(&mut walked.written),
            results: Vec::new(),
            blank: None,
            context,
            workspace: signature.workspace.0,
            workspace_device: signature.workspace_device,
            holds: Vec::new(),
        }
    }

    /// Builds the positional arguments.
    pub fn build_args<'py>(
        &self,
        py: Python<'py>,
        tensors: &[Bound<'py, PyAny>],
    ) -> PyResult<Bound<'py, PyTuple>> {
        let args = self
            .args
            .iter()
            .map(|a| a.build(py, tensors))
            .collect::<PyResult<Vec<_>>>()?;
        PyTuple::new(py, args)
    }

    /// Builds the keyword arguments.
    pub fn build_kwargs<'py>(
        &self,
        py: Python<'py>,
        tensors: &[Bound<'py, PyAny>],
    ) -> PyResult<Bound<'py, PyDict>> {
        let kwargs = PyDict::new(py);
        for (name, value) in &self.kwargs {
            kwargs.set_item(name, value.build(py, tensors)?)?;
        }
        Ok(kwargs)
    }
}
