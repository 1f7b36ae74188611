//! The stack of a thread's dispatch modes.

use pyo3::prelude::*;

/// The stack of this thread's modes, by functions of torch's C++. No handler of a signal runs in them, so no interrupt
/// leaves a mode where it ought to go, or is lost with an error that nobody looks at.
pub(super) struct Modes {
    /// `push_mode(mode)`.
    push: Py<PyAny>,
    /// `pop_mode() -> mode`.
    pop: Py<PyAny>,
    /// `count_modes() -> int`.
    count: Py<PyAny>,
}

impl Modes {
    /// Looks the functions up in the Python module `torch_internals`.
    ///
    /// # Errors
    /// `AttributeError` for a function that the module lacks.
    pub(super) fn of(internals: &Bound<'_, PyAny>) -> PyResult<Modes> {
        let get = |name: &str| -> PyResult<Py<PyAny>> { Ok(internals.getattr(name)?.unbind()) };
        Ok(Modes {
            push: get("push_mode")?,
            pop: get("pop_mode")?,
            count: get("count_modes")?,
        })
    }

    /// Puts a mode on the stack.
    pub(super) fn push(&self, py: Python<'_>, mode: &Py<PyAny>) -> PyResult<()> {
        self.push.bind(py).call1((mode,)).map(|_| ())
    }

    /// Takes the topmost mode off the stack.
    pub(super) fn pop(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.pop.bind(py).call0().map(Bound::unbind)
    }

    /// Takes all modes off the stack, the topmost first.
    fn lift(&self, py: Python<'_>) -> PyResult<Vec<Py<PyAny>>> {
        let count: usize = self.count.bind(py).call0()?.extract()?;
        (0..count).map(|_| self.pop(py)).collect()
    }

    /// Puts modes back that were lifted.
    fn put_back(&self, py: Python<'_>, modes: &[Py<PyAny>]) -> PyResult<()> {
        let mut lowest_first = modes.iter().rev();
        lowest_first.try_for_each(|mode| self.push(py, mode))
    }

    /// Puts a mode below all others.
    pub(super) fn push_beneath(&self, py: Python<'_>, mode: &Py<PyAny>) -> PyResult<()> {
        let others = self.lift(py)?;
        self.push(py, mode)?;
        self.put_back(py, &others)
    }

    /// Takes out what [`push_beneath`](Self::push_beneath) put there: the lowest place that has the mode.
    pub(super) fn drop_beneath(&self, py: Python<'_>, mode: &Py<PyAny>) -> PyResult<()> {
        let mut others = self.lift(py)?;
        if let Some(lowest) = others.iter().rposition(|other| other.is(mode)) {
            others.remove(lowest);
        }
        self.put_back(py, &others)
    }
}
