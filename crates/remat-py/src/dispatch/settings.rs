//! The settings of a session, as Python gives them and as the engine takes them.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Instant;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use remat_core::{
    Alignment, Arena, Bytes, Config, Memory, Moves, Partition, Policy, ThrashLimit, UnknownPolicy,
};

use super::costs::{Costs, costs};
use crate::executor::PlanFiles;
use crate::ffi::arena::{ALIGNMENT, SMALLEST};
use crate::tracking::devices::Follow;
use crate::tracking::slack::slack;

/// Speed reckoned for copies within main memory. Machines copy faster, so that a plan with copies takes no longer than
/// was reckoned.
const COPIES: Moves = Moves::Copied {
    // Unwrapped when this constant is compiled: 0 would be an error of the compiler.
    bytes_per_microsecond: NonZeroU32::new(4000).unwrap(),
};

/// A device's budget: its name, `torch.device`, and bytes (`None`: unlimited).
pub(super) type Budget<'py> = (String, Bound<'py, PyAny>, Option<u64>);

/// The memory of the first device.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Addresses {
    /// Bytes are counted; addresses do not matter.
    Fungible,
    /// One arena, whose blocks stay in place.
    Arena,
    /// One arena, whose blocks may be copied elsewhere.
    MovableArena,
}

/// A session's settings: the items of a Python dictionary.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(super) struct Settings {
    #[pyo3(from_py_with = policy)]
    policy: Policy,
    pub(super) seed: u64,
    pub(super) thrash_limit: Option<f64>,
    pub(super) trace: Option<PathBuf>,
    #[pyo3(from_py_with = follow)]
    pub(super) follow: Follow,
    #[pyo3(from_py_with = addresses)]
    memory: Addresses,
    #[pyo3(from_py_with = costs)]
    pub(super) costs: Costs,
    #[pyo3(from_py_with = plan)]
    pub(super) plan: Plan,
    /// So many of the run's first ops are recorded, however little it needs; `None` for all.
    pub(super) always_recorded: Option<u64>,
    pub(super) plan_files: Files,
    /// Whether ops come natively.
    pub(super) natively: bool,
}

/// Where plans are read and written: a file to follow, one to write, the folder of the plans of all runs.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(super) struct Files {
    given: Option<PathBuf>,
    out: Option<PathBuf>,
    cache: Option<PathBuf>,
}

impl From<Files> for PlanFiles {
    fn from(files: Files) -> PlanFiles {
        let Files { given, out, cache } = files;
        PlanFiles { given, out, cache }
    }
}

/// Whether steps are planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    Off,
    /// Steps that repeat are recorded, planned in the background and followed.
    Auto,
}

fn plan(text: &Bound<'_, PyAny>) -> PyResult<Plan> {
    match text.extract::<String>()?.as_str() {
        "off" => Ok(Plan::Off),
        "auto" => Ok(Plan::Auto),
        other => Err(PyValueError::new_err(format!(
            "plan {other:?}: expected \"off\" or \"auto\""
        ))),
    }
}

fn policy(name: &Bound<'_, PyAny>) -> PyResult<Policy> {
    let name: String = name.extract()?;
    name.parse()
        .map_err(|e: UnknownPolicy| PyValueError::new_err(e.to_string()))
}

fn follow(text: &Bound<'_, PyAny>) -> PyResult<Follow> {
    match text.extract::<String>()?.as_str() {
        "fixed" => Ok(Follow::Fixed),
        "accelerator" => Ok(Follow::Accelerator),
        other => Err(PyValueError::new_err(format!(
            "follow {other:?}: expected \"fixed\" or \"accelerator\""
        ))),
    }
}

fn addresses(text: &Bound<'_, PyAny>) -> PyResult<Addresses> {
    match text.extract::<String>()?.as_str() {
        "fungible" => Ok(Addresses::Fungible),
        "arena" => Ok(Addresses::Arena),
        "movable arena" => Ok(Addresses::MovableArena),
        other => Err(PyValueError::new_err(format!(
            "memory {other:?}: expected \"fungible\", \"arena\" or \"movable arena\""
        ))),
    }
}

/// Nanoseconds since the first call.
fn nanoseconds() -> u64 {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    FIRST.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

impl Settings {
    /// The engine's configuration, with these budgets in the order of device ids.
    pub(super) fn config(&self, budgets: &[Budget<'_>]) -> Config {
        Config {
            budgets: budgets
                .iter()
                .map(|(_, _, bytes)| bytes.map(|bytes| Bytes(bytes - slack(bytes))))
                .collect(),
            policy: self.policy,
            thrash: self
                .thrash_limit
                .map_or(ThrashLimit::Never, ThrashLimit::Ratio),
            seed: self.seed,
            memory: match self.memory {
                Addresses::Fungible => Memory::Fungible,
                Addresses::Arena | Addresses::MovableArena => Memory::Arena(self.arena()),
            },
            stopwatch: Some(nanoseconds),
            ..Config::default()
        }
    }

    /// The engine's view of the arena. Coop alone places ops of one class at one end, and may move blocks.
    fn arena(&self) -> Arena {
        let coop = self.policy.evicts_windows();
        Arena {
            alignment: Alignment::new(ALIGNMENT).unwrap_or_default(),
            partition: if coop {
                Partition::BySize
            } else {
                Partition::None
            },
            smallest: Bytes(SMALLEST),
            moves: if coop && self.memory == Addresses::MovableArena {
                COPIES
            } else {
                Moves::Never
            },
        }
    }
}
