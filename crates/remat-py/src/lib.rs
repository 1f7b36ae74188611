//! `remat._native`: the PyTorch front end of Remat. It performs what the engine decides and decides nothing.
//!
//! [`session`] is the dispatch mode through which every op passes; [`arguments`] reads a call; [`signature`] and
//! [`knowledge`] hold what is known of calls before they run; [`core_state`] performs evictions and replays;
//! [`storages`] knows the torch storages; [`record`] is what a replay needs; [`layout`] moves bytes between
//! storages without a copy; [`arena`] speaks to the preloaded allocator; [`ledger`] counts bytes apart from the engine; [`lineage`] says where chains of ops end;
//! [`plan`] hands chains and joint graphs to the offline planners.

mod arena;
mod arguments;
mod core_state;
mod fastcall;
mod func;
mod knowledge;
mod layout;
mod ledger;
mod let_go;
mod lineage;
mod outside;
mod plan;
mod record;
mod session;
mod signature;
mod storages;
mod tracing;

use std::ffi::OsString;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Bytes in a text such as `6GiB`, `512MB` or `1.5g`.
#[pyfunction]
fn parse_bytes(text: &str) -> PyResult<u64> {
    remat_trace::parse_bytes(text)
        .map(|b| b.0)
        .map_err(|e| PyValueError::new_err(e.to_string()))
}

/// A number of bytes as people write it.
#[pyfunction]
fn format_bytes(bytes: u64) -> String {
    remat_core::Bytes(bytes).to_string()
}

/// Names of all eviction policies.
#[pyfunction]
fn policies() -> Vec<String> {
    remat_core::names().map(|n| n.to_string()).collect()
}

/// Checks a policy's name; the error lists the known ones.
#[pyfunction]
fn check_policy(name: &str) -> PyResult<()> {
    name.parse::<remat_core::Policy>()
        .map(|_| ())
        .map_err(|e| PyValueError::new_err(e.to_string()))
}

/// The command line of the `remat` binary; returns the exit code.
#[pyfunction]
fn cli(py: Python<'_>, args: Vec<OsString>) -> i32 {
    py.detach(|| remat_cli::main_with(args))
}

/// Exchanges the bytes of two storages; used by the probe that verifies the layout.
#[pyfunction]
fn swap_storages(
    layout: (usize, usize),
    a: &Bound<'_, PyAny>,
    b: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let found = layout::Layout {
        data_ptr: layout.0,
        guard: layout.1,
    };
    found.swap(a.py(), layout::Impl::of(a)?, layout::Impl::of(b)?);
    Ok(())
}

/// Raises or lowers the guard of a storage; used by the probe that verifies the layout.
#[pyfunction]
fn guard_storage(layout: (usize, usize), storage: &Bound<'_, PyAny>, up: bool) -> PyResult<()> {
    let found = layout::Layout {
        data_ptr: layout.0,
        guard: layout.1,
    };
    let guard = if up {
        layout::Guard::Up
    } else {
        layout::Guard::Down
    };
    found.set_guard(storage.py(), layout::Impl::of(storage)?, guard);
    Ok(())
}

/// The extension module.
#[pymodule]
fn _native(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    m.add_class::<session::Session>()?;
    m.add_class::<storages::Deaths>()?;
    m.add_function(wrap_pyfunction!(parse_bytes, m)?)?;
    m.add_function(wrap_pyfunction!(format_bytes, m)?)?;
    m.add_function(wrap_pyfunction!(policies, m)?)?;
    m.add_function(wrap_pyfunction!(check_policy, m)?)?;
    m.add_function(wrap_pyfunction!(cli, m)?)?;
    m.add_function(wrap_pyfunction!(plan::plan_chain, m)?)?;
    m.add_function(wrap_pyfunction!(plan::verify_chain, m)?)?;
    m.add_function(wrap_pyfunction!(plan::peak_of_chain_run, m)?)?;
    m.add_function(wrap_pyfunction!(plan::chain_needed_later, m)?)?;
    m.add_function(wrap_pyfunction!(plan::plan_cut, m)?)?;
    m.add_function(wrap_pyfunction!(plan::verify_cut, m)?)?;
    m.add_function(wrap_pyfunction!(plan::between_groups, m)?)?;
    m.add_function(wrap_pyfunction!(swap_storages, m)?)?;
    m.add_function(wrap_pyfunction!(guard_storage, m)?)?;
    Ok(())
}
