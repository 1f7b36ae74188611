//! Arguments with every tensor replaced by a description of its view, so that they keep no tensor alive.

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::PyList;
use smallvec::SmallVec;

use super::rules::{self, Numbers};
use crate::ffi::gil::Object;

/// Input of a view over a storage that nothing was written to yet, and that the op overwrites entirely.
pub const BLANK: u32 = u32::MAX;

/// Sizes and strides of a tensor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Geometry {
    /// The sizes.
    pub sizes: Numbers,
    /// The strides, in elements.
    pub strides: SmallVec<[i64; 6]>,
}

impl Geometry {
    /// Numbers in the tensor; `None` if they are too many to count.
    pub fn numel(&self) -> Option<u64> {
        rules::product(&self.sizes)
    }

    /// Whether the numbers lie one after the other, in the order of their dimensions.
    pub fn is_contiguous(&self) -> bool {
        let mut expected = 1u64;
        let dims = self.sizes.iter().zip(&self.strides).rev();
        let mut dims = dims.filter(|&(&size, _)| size != 1);
        self.sizes.contains(&0)
            || dims.all(|(&size, &stride)| {
                let fits = u64::try_from(stride) == Ok(expected);
                expected = expected.saturating_mul(size);
                fits
            })
    }

    /// Whether rows or columns of a matrix, or of each in a batch, lie one after the other.
    pub fn is_read_by_blas(&self) -> bool {
        let ([.., rows, columns], [.., row, column]) = (&*self.sizes, &*self.strides) else {
            return self.is_contiguous();
        };
        let beyond =
            |stride: &i64, size: &u64| i64::try_from(*size).is_ok_and(|n| *stride >= n.max(1));
        (*column == 1 && beyond(row, columns)) || (*row == 1 && beyond(column, rows))
    }
}

/// [`Geometry::is_read_by_blas`] of sizes and strides.
#[pyfunction]
pub fn is_read_by_blas(sizes: Vec<u64>, strides: Vec<i64>) -> bool {
    let geometry = Geometry {
        sizes: sizes.into(),
        strides: strides.into(),
    };
    geometry.is_read_by_blas()
}

/// A view of one of the op's input storages.
pub struct View {
    /// Index into the op's inputs in the engine, or [`BLANK`].
    pub input: u32,
    /// Its sizes and strides.
    pub geometry: Geometry,
    /// `torch.dtype`.
    pub dtype: Object,
    /// Lazy conjugation.
    pub conj: bool,
    /// Lazy negation.
    pub neg: bool,
    /// `form(storage) -> Tensor`, for a tensor that sizes, strides and dtype do not describe (quantized, nested).
    pub form: Option<Object>,
}

/// A number among the arguments whose value differs from call to call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// A `float`.
    Float(f64),
    /// An `int`.
    Int(i64),
    /// A `bool`.
    Bool(bool),
}

impl Number {
    fn object(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        match self {
            Number::Float(value) => value.into_bound_py_any(py),
            Number::Int(value) => value.into_bound_py_any(py),
            Number::Bool(value) => value.into_bound_py_any(py),
        }
    }
}

/// One argument.
pub enum Arg {
    /// Index into the views of the call.
    Tensor(u32),
    /// Index into the numbers of the call.
    Number(u32),
    /// A value without tensors.
    Object(Object),
    /// A list with tensors in it.
    List(Vec<Arg>),
    /// Left out of the replay (running statistics).
    Absent,
}

impl Arg {
    /// Builds the Python argument.
    pub fn build<'py>(
        &self,
        py: Python<'py>,
        tensors: &[Bound<'py, PyAny>],
        numbers: &[Number],
    ) -> PyResult<Bound<'py, PyAny>> {
        Ok(match self {
            Arg::Tensor(i) => tensors[*i as usize].clone(),
            Arg::Number(i) => numbers[*i as usize].object(py)?,
            Arg::Object(o) => o.bind(py).clone(),
            Arg::Absent => py.None().into_bound(py),
            Arg::List(items) => {
                let items = items
                    .iter()
                    .map(|a| a.build(py, tensors, numbers))
                    .collect::<PyResult<Vec<_>>>()?;
                PyList::new(py, items)?.into_any()
            }
        })
    }
}
