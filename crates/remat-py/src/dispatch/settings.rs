//! The settings of a session, as Python gives them and as the engine takes them.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Instant;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use remat_core::{Alignment, Arena, Bytes, Config, Memory, Moves, Partition, Policy, ThrashLimit};

use super::costs::Costs;
use crate::executor::PlanFiles;
use crate::ffi::arena::{ALIGNMENT, SMALLEST};
use crate::ffi::errors::value_error;
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
    /// Whether steps that repeat are recorded, planned in the background and followed.
    #[pyo3(item("plan"), from_py_with = plans)]
    pub(super) plans: bool,
    /// So many of the run's first ops are recorded, however little it needs; `None` for all.
    pub(super) always_recorded: Option<u64>,
    pub(super) plan_files: PlanFiles,
    /// Whether ops come natively.
    pub(super) natively: bool,
}

/// The value that a text stands for, among those that `what` may have.
///
/// # Errors
/// `ValueError` that names them for any other text.
pub(super) fn choice<T: Copy>(
    what: &str,
    text: &Bound<'_, PyAny>,
    values: &[(&str, T)],
) -> PyResult<T> {
    let text: String = text.extract()?;
    let found = values.iter().find(|(name, _)| *name == text);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<String> = values.iter().map(|(n, _)| format!("{n:?}")).collect();
        let expected = match names.split_last() {
            Some((last, others)) if !others.is_empty() => {
                format!("{} or {last}", others.join(", "))
            }
            _ => names.concat(),
        };
        PyValueError::new_err(format!("{what} {text:?}: expected {expected}"))
    })
}

fn costs(text: &Bound<'_, PyAny>) -> PyResult<Costs> {
    let values = [("measured", Costs::Measured), ("bytes", Costs::OfBytes)];
    choice("costs", text, &values)
}

fn plans(text: &Bound<'_, PyAny>) -> PyResult<bool> {
    choice("plan", text, &[("off", false), ("auto", true)])
}

fn policy(name: &Bound<'_, PyAny>) -> PyResult<Policy> {
    name.extract::<String>()?.parse().map_err(value_error)
}

fn follow(text: &Bound<'_, PyAny>) -> PyResult<Follow> {
    let values = [
        ("fixed", Follow::Fixed),
        ("accelerator", Follow::Accelerator),
    ];
    choice("follow", text, &values)
}

fn addresses(text: &Bound<'_, PyAny>) -> PyResult<Addresses> {
    let values = [
        ("fungible", Addresses::Fungible),
        ("arena", Addresses::Arena),
        ("movable arena", Addresses::MovableArena),
    ];
    choice("memory", text, &values)
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
