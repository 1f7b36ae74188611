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
use std::path::PathBuf;

use pyo3::prelude::*;

use ffi::errors::value_error;
use ffi::layout::{Guard, Impl, Layout};
use remat_core::Policy;

/// Bytes in a text such as `6GiB`, `512MB` or `1.5g`.
#[pyfunction]
fn parse_bytes(text: &str) -> PyResult<u64> {
    remat_trace::parse_bytes(text)
        .map(|b| b.0)
        .map_err(value_error)
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
    name.parse::<Policy>().map(|_| ()).map_err(value_error)
}

/// Whether a policy makes sense in an arena only.
#[pyfunction]
fn goes_by_addresses(policy: &str) -> PyResult<bool> {
    let policy: Policy = policy.parse().map_err(value_error)?;
    Ok(policy.needs_arena())
}

/// The command line of the `remat` binary; returns the exit code. Where a signal ends the process, a temporary folder
/// is removed before.
#[pyfunction]
#[pyo3(signature = (args, temporary=None))]
fn cli(py: Python<'_>, args: Vec<OsString>, temporary: Option<PathBuf>) -> i32 {
    py.detach(|| remat_cli::main_removing(args, temporary.as_deref()))
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

/// Adds functions to a module.
macro_rules! functions {
    ($module:ident: $($function:path),* $(,)?) => {
        $($module.add_function(wrap_pyfunction!($function, $module)?)?;)*
    };
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
    m.add_class::<ffi::watch::WatchedProbe>()?;
    functions! { m:
        call::view::is_read_by_blas,
        timeline_page,
        parse_bytes,
        format_bytes,
        budget_that_holds,
        with_headroom,
        floor::find_floor,
        policies,
        check_policy,
        goes_by_addresses,
        cli,
        plan::plan_chain,
        plan::verify_chain,
        plan::peak_of_chain_run,
        plan::chain_needed_later,
        plan::plan_cut,
        plan::plan_step,
        plan::verify_cut,
        plan::between_groups,
        swap_storages,
        guard_storage,
        dispatch::fallback::register_native,
        dispatch::native::describe_boxed,
        ffi::instances::instances,
        ffi::caching::register_caching,
        ffi::caching::enter_caching,
        ffi::caching::leave_caching,
        ffi::caching::read_caching,
        ffi::watch::register_watch,
        ffi::settings::register_settings,
        ffi::autocast::register_autocast,
        ffi::autocast::read_autocast,
        ffi::autocast::with_autocast,
        ffi::settings::read_settings,
        ffi::watch::is_watched,
        ffi::watch::watch_results,
        ffi::autograd::register_autograd,
        ffi::autograd::read_backward,
        ffi::autograd::read_node,
        ffi::autograd::read_next_node,
        ffi::autograd::trust_autograd,
        ffi::generator::register_generator,
        ffi::generator::read_generator,
        ffi::generator::write_generator,
        ffi::generator::trust_generator,
        dispatch::thread::include_native,
        dispatch::thread::pause_native,
        dispatch::native::is_leaf,
        dispatch::native::reaches_session,
        dispatch::native::leave_native,
        dispatch::capture::capture_native,
        dispatch::raising::raise_native,
        dispatch::rehearsal::register_replays,
        dispatch::rehearsal::rehearse_replay,
        dispatch::rehearsal::replay_natively,
    }
    Ok(())
}
