//! Forms of calls whose ops need no Python.

use std::sync::Arc;

use remat_core::Output;

use crate::call::form::Form;
use crate::call::func::Func;
use crate::call::record::GradMode;
use crate::call::signature::Signature;
use crate::call::stacked::Arity;
use crate::call::view::Number;

/// The call that is on its way through Python, and may make its form known.
pub(super) struct Candidate {
    pub(super) key: u64,
    pub(super) numbers: Vec<Number>,
    /// For each number the position of the argument.
    pub(super) positions: Vec<u32>,
    /// Tensors among the arguments.
    pub(super) tensors: usize,
    pub(super) arity: &'static Arity,
}

/// A form whose calls need no Python.
pub(super) struct Known {
    pub(super) func: Arc<Func>,
    pub(super) form: Arc<Form>,
    pub(super) outputs: Vec<Output>,
    pub(super) signature: Signature,
    pub(super) grad: GradMode,
}
