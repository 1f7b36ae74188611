//! Buffers of a call of a known form, of which one is under way at a time.

use remat_core::{Bytes, TensorId};

use super::running::{Inputs, Running};

/// Vectors that are used again, so that a call of a known form allocates nothing.
#[derive(Default)]
pub(super) struct Buffers {
    pub(super) inputs: Inputs,
    pub(super) fresh: Fresh,
    pub(super) made: Vec<TensorId>,
    /// The box of the call before.
    pub(super) running: Option<Box<Running>>,
}

/// The storages of results, as they lie on the stack.
#[derive(Default)]
pub(super) struct Fresh {
    pub(super) sizes: Vec<Bytes>,
    pub(super) storages: Vec<FreshStorage>,
    /// Whether all is as the form says.
    pub(super) usual: bool,
}

/// A storage among the results.
#[derive(Clone, Copy)]
pub(super) struct FreshStorage {
    /// The output that it is.
    pub(super) output: u32,
    /// Its place in the order in which results are flattened.
    pub(super) place: u32,
    pub(super) address: usize,
}
