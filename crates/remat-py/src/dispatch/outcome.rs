//! The end of the session's part in a call.

use pyo3::prelude::*;

use super::foreign::Foreign;

/// The end of the session's part in a call.
pub(super) enum Outcome {
    /// The call's result.
    Done(Py<PyAny>),
    /// The caller runs the call once the lock is free, with the mode active again.
    Redispatch,
    /// The caller has the call [run](super::foreign::run) once the lock is free.
    Foreign(Box<Foreign>),
    /// A tensor subclass among the arguments handles the call; what it does is seen with the mode active again.
    Declined,
}
