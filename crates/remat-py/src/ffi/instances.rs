//! The instances of a class among all objects of a program.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyType};
use rustc_hash::FxHashMap;

/// An object is fetched from main memory while so many before it are looked at.
#[cfg(target_arch = "x86_64")]
const AHEAD: usize = 16;

/// The objects whose type is a class, or one that inherits from it.
///
/// Each type is asked once, as a program has some thousand types and several hundred thousand objects. Objects are
/// not asked at all: one may answer for another, as a proxy does, and run code for it. They are looked at where the
/// list holds them, so that those of other types are read and not written to.
#[pyfunction]
pub fn instances<'py>(
    objects: &Bound<'py, PyList>,
    class: &Bound<'py, PyType>,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    // SAFETY: `place` is in the list, which holds the object.
    let lent = |place: usize| unsafe { ffi::PyList_GetItem(objects.as_ptr(), place as isize) };
    let mut asked = FxHashMap::default();
    let mut found = Vec::new();
    let mut place = 0;
    while place < objects.len() {
        #[cfg(target_arch = "x86_64")]
        if place + AHEAD < objects.len() {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: the address is not read, so any would do.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(lent(place + AHEAD).cast()) };
        }
        // SAFETY: the object is there, as the list holds it, and this thread, which has the GIL, runs nothing between.
        let kind = unsafe { ffi::Py_TYPE(lent(place)) };
        let is_one = match asked.get(&kind) {
            Some(&known) => known,
            None => {
                let answer = objects.get_item(place)?.get_type().is_subclass(class)?;
                *asked.entry(kind).or_insert(answer)
            }
        };
        if is_one {
            found.push(objects.get_item(place)?);
        }
        place += 1;
    }
    Ok(found)
}
