//! An op as it was called, with every tensor replaced by a description of the view: enough to call it again,
//! and nothing that keeps a tensor alive.

use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use remat_core::PoolId;

use crate::arguments::Walk;
use crate::func::Func;
use crate::signature::Signature;
use crate::storages::LiveId;

/// In place of an input: a storage not written to yet, which the op overwrites entirely.
pub const BLANK: u32 = u32::MAX;

/// A view of one of the op's input storages.
pub struct View {
    /// Index into the op's inputs in the engine, or [`BLANK`].
    pub input: u32,
    /// `torch.Size`.
    pub shape: Py<PyAny>,
    /// Strides, in elements.
    pub stride: Py<PyAny>,
    /// Offset, in elements.
    pub offset: Py<PyAny>,
    /// `torch.dtype`.
    pub dtype: Py<PyAny>,
    /// Lazy conjugation.
    pub conj: bool,
    /// Lazy negation.
    pub neg: bool,
}

/// A storage that a record keeps from being freed. Ids are used again; serial numbers are not.
#[derive(Clone, Copy, Debug)]
pub struct Hold {
    /// Its place in the table.
    pub id: LiveId,
    /// Its number.
    pub serial: u64,
}

/// One argument.
pub enum Arg {
    /// Index into [`Record::views`].
    Tensor(u32),
    /// Anything without tensors.
    Object(Py<PyAny>),
    /// A list with tensors in it.
    List(Vec<Arg>),
    /// Left out of the replay (running statistics).
    Absent,
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
    /// Which inputs are written, as indices into the op's inputs, in the order of the engine's in-place outputs.
    pub written: Vec<u32>,
    /// Flattened results: index into the op's outputs for each, if it has a storage of its own.
    pub results: Vec<Option<u32>>,
    /// Size and place of the blank storage, where a view is of one.
    pub blank: Option<(u64, PoolId)>,
    /// State of the random generator before the op drew from it.
    pub rng: Option<Py<PyAny>>,
    /// Grad mode at the time: a few kernels return more when it is on.
    pub grad: bool,
    /// Bytes it needs while it runs, beyond inputs and outputs.
    pub workspace: u64,
    /// Where those are.
    pub workspace_pool: PoolId,
    /// Storages of constants that this record keeps from being freed.
    pub holds: Vec<Hold>,
}

impl Record {
    /// The record of a call whose arguments were walked; takes them over. Its results are still to be named.
    pub fn of(
        func: &Func,
        walked: &mut Walk,
        signature: &Signature,
        grad: bool,
        rng: Option<Py<PyAny>>,
    ) -> Record {
        Record {
            func: func.overload.as_ptr() as usize,
            args: std::mem::take(&mut walked.args),
            kwargs: std::mem::take(&mut walked.kwargs),
            views: std::mem::take(&mut walked.views),
            written: std::mem::take(&mut walked.written),
            results: Vec::new(),
            blank: None,
            rng,
            grad,
            workspace: signature.workspace.0,
            workspace_pool: signature.workspace_pool,
            holds: Vec::new(),
        }
    }
}

impl Arg {
    /// Builds the Python argument.
    pub fn build<'py>(
        &self,
        py: Python<'py>,
        tensors: &[Bound<'py, PyAny>],
    ) -> PyResult<Bound<'py, PyAny>> {
        Ok(match self {
            Arg::Tensor(i) => tensors[*i as usize].clone(),
            Arg::Object(o) => o.bind(py).clone(),
            Arg::Absent => py.None().into_bound(py),
            Arg::List(items) => {
                let items = items
                    .iter()
                    .map(|a| a.build(py, tensors))
                    .collect::<PyResult<Vec<_>>>()?;
                PyList::new(py, items)?.into_any()
            }
        })
    }
}

impl Record {
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
}
