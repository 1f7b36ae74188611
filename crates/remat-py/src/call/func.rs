//! The description of a torch op, independent of arguments: its kind, the arguments it writes, whether it is random.
//! `describe` of torch internals reads it off the op's schema, once per op.

use pyo3::prelude::*;
use pyo3::types::PyString;

/// The session's treatment of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Makes a view: touches no data, runs as it is even on evicted storages.
    View,
    /// Decomposes into other ops, which the session then sees one by one.
    Composite,
    /// An ordinary op on data.
    Plain,
    /// Reads data and returns no tensor: nothing to replay.
    Read,
    /// Gives a tensor another storage or its storage another size. Afterwards the storages are registered anew, pinned.
    Restructure,
    /// Not an `aten` op: its code is the program's.
    Foreign,
}

impl FromPyObject<'_, '_> for Kind {
    type Error = PyErr;

    fn extract(name: Borrowed<'_, '_, PyAny>) -> PyResult<Kind> {
        Ok(match name.extract::<String>()?.as_str() {
            "view" => Kind::View,
            "composite" => Kind::Composite,
            "read" => Kind::Read,
            "restructure" => Kind::Restructure,
            "foreign" => Kind::Foreign,
            _ => Kind::Plain,
        })
    }
}

/// Running statistics that an op may update beside its result (batch normalisation).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningStats {
    /// Positions of the statistics among the arguments.
    pub args: Vec<usize>,
    /// Position of the flag that the op computes with the statistics of the batch.
    pub training: Option<usize>,
}

/// An op, described: the items of the dictionary that `describe` returns.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Func {
    /// The overload object, kept so that its address stays a valid key.
    pub overload: Py<PyAny>,
    /// The C function behind it.
    pub call: Py<PyAny>,
    /// `aten.add.Tensor`.
    pub name: String,
    /// The session's treatment of it.
    pub kind: Kind,
    /// The treatment of a composite op with strided nested tensors among its arguments, for which it has a kernel.
    pub nested: Option<Kind>,
    /// Positions of arguments it writes into.
    pub writes: Vec<usize>,
    /// Keyword arguments it writes into.
    pub writes_by_name: Vec<Py<PyString>>,
    /// Bit `i`: positional argument `i` is a number whose value cannot change a size.
    pub scalars: u64,
    /// Whether it draws random numbers from a generator.
    pub random: bool,
    /// Whether the sizes of its outputs depend on data.
    pub data_dependent: bool,
    /// Whether they do so only where a mask is among the arguments.
    pub takes_masks: bool,
    /// Whether it returns memory that nothing has been written to yet.
    pub blank: bool,
    /// Whether it overwrites all of its first argument, whatever that held.
    pub fills: bool,
    /// Whether its results are pinned, because code above the dispatcher reads them by raw pointer.
    pub pins_results: bool,
    /// Positions of arguments that are pinned, because its result keeps reading them by raw pointer.
    pub pins: Vec<usize>,
    /// Whether autograd may use it to leave a gradient in a leaf; such a gradient is pinned.
    pub accumulates: bool,
    /// Whether it may keep its arguments, or share their memory, once it has run.
    pub keeps_arguments: bool,
    /// Batch normalisation's side effect.
    #[pyo3(from_py_with = stats)]
    pub stats: Option<RunningStats>,
}

fn stats(described: &Bound<'_, PyAny>) -> PyResult<Option<RunningStats>> {
    let stats = described.extract::<Option<(Vec<usize>, Option<usize>)>>()?;
    Ok(stats.map(|(args, training)| RunningStats { args, training }))
}

impl Func {
    /// Whether it writes into some of its arguments.
    pub fn is_writing(&self) -> bool {
        !(self.writes.is_empty() && self.writes_by_name.is_empty())
    }
}
