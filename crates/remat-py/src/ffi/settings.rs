//! Settings of torch's C++ global context, read without Python.
//!
//! `prepare_native` of torch internals names the functions, and compares what they tell with what Python is told.

use std::sync::OnceLock;

use pyo3::prelude::*;

use super::symbols::function;

/// Functions that tell one setting each.
struct Readers {
    /// `at::globalContext()`.
    context: usize,
    /// Methods of the context that return a `bool`.
    flags: Vec<unsafe extern "C" fn(usize) -> bool>,
    /// `at::get_num_threads()`.
    threads: unsafe extern "C" fn() -> i32,
    /// `c10::get_default_dtype_as_scalartype()`.
    dtype: unsafe extern "C" fn() -> i8,
}

static READERS: OnceLock<Readers> = OnceLock::new();

/// All settings in one number; `None` where they have to be asked for through Python.
#[inline]
pub fn read() -> Option<u64> {
    let readers = READERS.get()?;
    // SAFETY: torch's own functions, which read fields of the context or of this thread. The names state the
    // arguments; `register_settings` compared the results.
    unsafe {
        let numbers = (readers.threads)() as u32 as u64 | ((readers.dtype)() as u8 as u64) << 32;
        let flags = readers.flags.iter();
        Some(flags.fold(numbers, |all, flag| {
            all << 1 | u64::from(flag(readers.context)) // few enough that no bit is lost
        }))
    }
}

/// Looks the functions up. `flags` are methods of `at::Context`, by mangled name.
///
/// # Errors
/// `RuntimeError` that names the function which torch lacks.
#[pyfunction]
pub fn register_settings(c10: &str, cpu: &str, flags: Vec<String>) -> PyResult<()> {
    if READERS.get().is_some() {
        return Ok(());
    }
    // SAFETY: the mangled names state the arguments. `globalContext` returns a reference, `ScalarType` is an `int8_t`,
    // and the methods of the context return `bool`: `prepare_native` compares each with what Python is told.
    let readers = unsafe {
        let context: unsafe extern "C" fn() -> usize = function(cpu, "_ZN2at13globalContextEv")?;
        let flags = flags.iter().map(|name| function(cpu, name));
        Readers {
            context: context(),
            flags: flags.collect::<PyResult<_>>()?,
            threads: function(cpu, "_ZN2at15get_num_threadsEv")?,
            dtype: function(c10, "_ZN3c1031get_default_dtype_as_scalartypeEv")?,
        }
    };
    let _ = READERS.set(readers);
    Ok(())
}

/// The settings as read here: flags, threads, the default dtype as torch numbers it.
#[pyfunction]
pub fn read_settings() -> Option<(Vec<bool>, i32, i8)> {
    let readers = READERS.get()?;
    // SAFETY: as in `read`.
    unsafe {
        let flags = readers.flags.iter().map(|flag| flag(readers.context));
        Some((flags.collect(), (readers.threads)(), (readers.dtype)()))
    }
}
