//! The instances of a class among all objects of a program.

use pyo3::prelude::*;
use pyo3::types::{PyList, PyType};
use rustc_hash::FxHashMap;

/// The objects whose type is a class, or one that inherits from it.
///
/// Each type is asked once, as a program has some thousand types and several hundred thousand objects. Objects are
/// not asked at all: one may answer for another, as a proxy does, and run code for it.
#[pyfunction]
pub fn instances<'py>(
    objects: &Bound<'py, PyList>,
    class: &Bound<'py, PyType>,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let mut asked = FxHashMap::default();
    let mut found = Vec::new();
    for object in objects.iter() {
        let kind = object.get_type_ptr();
        let is_one = match asked.get(&kind) {
            Some(&known) => known,
            None => {
                let answer = object.get_type().is_subclass(class)?;
                *asked.entry(kind).or_insert(answer)
            }
        };
        if is_one {
            found.push(object);
        }
    }
    Ok(found)
}
