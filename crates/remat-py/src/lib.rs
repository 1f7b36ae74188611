//! `remat._native`: the PyTorch front end of Remat. It performs what the engine decides and decides nothing.
//!
//! Each room uses only those below it:
//!
//! | room | it holds |
//! | --- | --- |
//! | [`dispatch`] | the dispatch mode through which every op passes, from its announcement to its results |
//! | [`executor`] | the engine, and the execution of its steps: evictions, replays, moves |
//! | [`call`] | one call of an op: description, arguments, signature, and the record to replay it by |
//! | [`tracking`] | the program's memory: torch's storages, bytes, devices, chains of ops, the trace |
//! | [`timeline`] | what took memory and time, op by op, from which lines of the program |
//! | [`ffi`] | the edges: torch's storages and Python functions, allocators, Python's errors |
//!
//! Apart from the rest, [`floor`] finds the smallest budget of a recorded run, and [`plan`] hands chains and joint
//! graphs to the offline planners.

mod call;
mod dispatch;
mod executor;
mod ffi;
mod floor;
mod plan;
mod timeline;
mod tracking;

use std::ffi::OsString;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use ffi::layout::{Guard, Impl, Layout};
use remat_core::{Policy, UnknownPolicy};

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

/// The smallest budget that holds so many bytes beside the part that is kept back.
#[pyfunction]
fn budget_that_holds(bytes: u64) -> u64 {
    tracking::slack::with_slack(bytes)
}

/// A budget to start anew with where `smallest` bytes are the least for what is known so far, and `budget` was refused.
#[pyfunction]
fn with_headroom(smallest: u64, budget: u64) -> u64 {
    tracking::slack::with_headroom(smallest, budget)
}

/// The page that shows a recording of a run, told as JSON. It refers to nothing beside itself.
#[pyfunction]
fn timeline_page(told: &str) -> String {
    remat_figures::page::timeline(told)
}

/// Names of all eviction policies.
#[pyfunction]
fn policies() -> Vec<String> {
    remat_core::names().map(|n| n.to_string()).collect()
}

/// Checks a policy's name; the error lists the known ones.
#[pyfunction]
fn check_policy(name: &str) -> PyResult<()> {
    policy_of(name).map(|_| ())
}

/// Whether a policy makes sense in an arena only.
#[pyfunction]
fn goes_by_addresses(policy: &str) -> PyResult<bool> {
    policy_of(policy).map(Policy::needs_arena)
}

fn policy_of(name: &str) -> PyResult<Policy> {
    name.parse()
        .map_err(|e: UnknownPolicy| PyValueError::new_err(e.to_string()))
}

/// The command line of the `remat` binary; returns the exit code.
#[pyfunction]
fn cli(py: Python<'_>, args: Vec<OsString>) -> i32 {
    py.detach(|| remat_cli::main_with(args))
}

/// Exchanges the bytes of two storages, for the probe that verifies the layout.
#[pyfunction]
fn swap_storages(
    layout: (usize, usize),
    a: &Bound<'_, PyAny>,
    b: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let (layout, first, second) = (layout_of(layout), Impl::of(a)?, Impl::of(b)?);
    // SAFETY: `a` and `b` are in scope and own the storages, which only the probe uses: it exchanges storages of one
    // size, or guards the one without bytes. It found the offset by comparing the words of `StorageImpl`s with known
    // addresses.
    unsafe { layout.swap(a.py(), first, second) };
    Ok(())
}

/// Raises or lowers the guard of a storage, for the probe that verifies the layout.
#[pyfunction]
fn guard_storage(layout: (usize, usize), storage: &Bound<'_, PyAny>, up: bool) -> PyResult<()> {
    let (layout, imp) = (layout_of(layout), Impl::of(storage)?);
    let guard = if up { Guard::Up } else { Guard::Down };
    // SAFETY: `storage` is in scope and owns the storage, which only the probe uses: it lowers the guard and then gives
    // a storage its bytes back before it reads them. It found the offset by having torch itself set two of the flags.
    unsafe { layout.set_guard(storage.py(), imp, guard) };
    Ok(())
}

fn layout_of((data_ptr, guard): (usize, usize)) -> Layout {
    Layout { data_ptr, guard }
}

/// The extension module.
// In a free-threaded interpreter the GIL comes back with this module: much of it relies on that lock.
#[pymodule(gil_used = true)]
fn _native(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    m.add_class::<dispatch::Session>()?;
    m.add_class::<tracking::weak_deaths::Deaths>()?;
    m.add_class::<timeline::Recording>()?;
    m.add_class::<call::rules::Rule>()?;
    m.add_function(wrap_pyfunction!(call::view::is_read_by_blas, m)?)?;
    m.add_function(wrap_pyfunction!(timeline_page, m)?)?;
    m.add_function(wrap_pyfunction!(parse_bytes, m)?)?;
    m.add_function(wrap_pyfunction!(format_bytes, m)?)?;
    m.add_function(wrap_pyfunction!(budget_that_holds, m)?)?;
    m.add_function(wrap_pyfunction!(with_headroom, m)?)?;
    m.add_function(wrap_pyfunction!(floor::find_floor, m)?)?;
    m.add_function(wrap_pyfunction!(policies, m)?)?;
    m.add_function(wrap_pyfunction!(check_policy, m)?)?;
    m.add_function(wrap_pyfunction!(goes_by_addresses, m)?)?;
    m.add_function(wrap_pyfunction!(cli, m)?)?;
    m.add_function(wrap_pyfunction!(plan::plan_chain, m)?)?;
    m.add_function(wrap_pyfunction!(plan::verify_chain, m)?)?;
    m.add_function(wrap_pyfunction!(plan::peak_of_chain_run, m)?)?;
    m.add_function(wrap_pyfunction!(plan::chain_needed_later, m)?)?;
    m.add_function(wrap_pyfunction!(plan::plan_cut, m)?)?;
    m.add_function(wrap_pyfunction!(plan::plan_step, m)?)?;
    m.add_function(wrap_pyfunction!(plan::verify_cut, m)?)?;
    m.add_function(wrap_pyfunction!(plan::between_groups, m)?)?;
    m.add_function(wrap_pyfunction!(swap_storages, m)?)?;
    m.add_function(wrap_pyfunction!(guard_storage, m)?)?;
    m.add_function(wrap_pyfunction!(dispatch::fallback::register_native, m)?)?;
    m.add_function(wrap_pyfunction!(dispatch::native::describe_boxed, m)?)?;
    m.add_function(wrap_pyfunction!(ffi::instances::instances, m)?)?;
    m.add_function(wrap_pyfunction!(ffi::caching::register_caching, m)?)?;
    m.add_function(wrap_pyfunction!(ffi::caching::enter_caching, m)?)?;
    m.add_function(wrap_pyfunction!(ffi::caching::leave_caching, m)?)?;
    m.add_function(wrap_pyfunction!(ffi::caching::read_caching, m)?)?;
    m.add_function(wrap_pyfunction!(ffi::watch::register_watch, m)?)?;
    m.add_function(wrap_pyfunction!(ffi::settings::register_settings, m)?)?;
    m.add_function(wrap_pyfunction!(ffi::autocast::register_autocast, m)?)?;
    m.add_function(wrap_pyfunction!(ffi::autocast::read_autocast, m)?)?;
    m.add_function(wrap_pyfunction!(ffi::autocast::with_autocast, m)?)?;
    m.add_function(wrap_pyfunction!(ffi::settings::read_settings, m)?)?;
    m.add_function(wrap_pyfunction!(ffi::watch::is_watched, m)?)?;
    m.add_function(wrap_pyfunction!(ffi::watch::watch_results, m)?)?;
    m.add_class::<ffi::watch::WatchedProbe>()?;
    m.add_function(wrap_pyfunction!(ffi::autograd::register_autograd, m)?)?;
    m.add_function(wrap_pyfunction!(ffi::autograd::read_backward, m)?)?;
    m.add_function(wrap_pyfunction!(ffi::autograd::read_node, m)?)?;
    m.add_function(wrap_pyfunction!(ffi::autograd::read_next_node, m)?)?;
    m.add_function(wrap_pyfunction!(ffi::autograd::trust_autograd, m)?)?;
    m.add_function(wrap_pyfunction!(ffi::generator::register_generator, m)?)?;
    m.add_function(wrap_pyfunction!(ffi::generator::read_generator, m)?)?;
    m.add_function(wrap_pyfunction!(ffi::generator::write_generator, m)?)?;
    m.add_function(wrap_pyfunction!(ffi::generator::trust_generator, m)?)?;
    m.add_function(wrap_pyfunction!(dispatch::thread::include_native, m)?)?;
    m.add_function(wrap_pyfunction!(dispatch::thread::pause_native, m)?)?;
    m.add_function(wrap_pyfunction!(dispatch::native::is_leaf, m)?)?;
    m.add_function(wrap_pyfunction!(dispatch::native::reaches_session, m)?)?;
    m.add_function(wrap_pyfunction!(dispatch::native::leave_native, m)?)?;
    m.add_function(wrap_pyfunction!(dispatch::capture::capture_native, m)?)?;
    m.add_function(wrap_pyfunction!(dispatch::raising::raise_native, m)?)?;
    m.add_function(wrap_pyfunction!(dispatch::rehearsal::register_replays, m)?)?;
    m.add_function(wrap_pyfunction!(dispatch::rehearsal::rehearse_replay, m)?)?;
    m.add_function(wrap_pyfunction!(dispatch::rehearsal::replay_natively, m)?)?;
    Ok(())
}
