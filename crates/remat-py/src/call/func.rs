//! The description of a torch op, independent of arguments: its kind, the arguments it writes, whether it is random.
//! `describe` of torch internals reads it off the op's schema, once per op.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

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

impl Kind {
    fn of(name: &str) -> Kind {
        match name {
            "view" => Kind::View,
            "composite" => Kind::Composite,
            "read" => Kind::Read,
            "restructure" => Kind::Restructure,
            "foreign" => Kind::Foreign,
            _ => Kind::Plain,
        }
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

/// An op, described.
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
    pub stats: Option<RunningStats>,
}

impl Func {
    /// Whether it writes into some of its arguments.
    pub fn is_writing(&self) -> bool {
        !(self.writes.is_empty() && self.writes_by_name.is_empty())
    }

    /// Reads the dictionary that `describe` returns.
    pub fn from_description(overload: &Bound<'_, PyAny>, d: &Bound<'_, PyDict>) -> PyResult<Func> {
        let get = |key: &str| -> PyResult<Bound<'_, PyAny>> {
            d.get_item(key)?
                .ok_or_else(|| pyo3::exceptions::PyKeyError::new_err(key.to_owned()))
        };
        let nested = get("nested")?.extract::<Option<String>>()?;
        let stats = get("stats")?.extract::<Option<(Vec<usize>, Option<usize>)>>()?;
        let stats = stats.map(|(args, training)| RunningStats { args, training });
        Ok(Func {
            overload: overload.clone().unbind(),
            call: get("call")?.unbind(),
            name: get("name")?.extract()?,
            kind: Kind::of(&get("kind")?.extract::<String>()?),
            nested: nested.as_deref().map(Kind::of),
            writes: get("writes")?.extract()?,
            writes_by_name: get("writes_by_name")?.extract()?,
            scalars: get("scalars")?.extract()?,
            random: get("random")?.extract()?,
            data_dependent: get("data_dependent")?.extract()?,
            takes_masks: get("takes_masks")?.extract()?,
            blank: get("blank")?.extract()?,
            fills: get("fills")?.extract()?,
            pins_results: get("pins_results")?.extract()?,
            pins: get("pins")?.extract()?,
            accumulates: get("accumulates")?.extract()?,
            keeps_arguments: get("keeps_arguments")?.extract()?,
            stats,
        })
    }
}
