//! Blocks that ops took while nobody watched them, as the engine and the ledger know them.

use remat_core::TensorId;

/// All such blocks that are there, taken together.
#[derive(Default)]
pub struct Unwatched {
    /// Their bytes, as they were told last.
    pub bytes: u64,
    /// The constant that they are to the engine; `None` where there are none.
    pub constant: Option<TensorId>,
    /// Their bytes as the planned step began that the program is in.
    pub at_begin: u64,
    /// Ops of planned steps that ran unwatched.
    pub transient: u64,
}
