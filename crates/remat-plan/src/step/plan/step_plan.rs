//! A plan of a step.

use crate::step::placement::Addresses;
use serde::{Deserialize, Serialize};

/// The version of [`StepPlan`] that this crate writes and reads.
pub const PLAN_VERSION: u32 = 1;

/// A plan of a step, as `PLAN.json` holds it.
///
/// ```
/// use remat_plan::step::{Action, StepPlan};
///
/// let text = r#"{"remat-step-plan": 1, "budget_bytes": 300, "peak_bytes": 300, "cost_ns": 7, "recompute_ns": 0,
///     "bound_ns": 7, "seed": 0, "iterations": 0, "ops": 2, "storages": 2,
///     "steps": [["run", 0], ["run", 1], ["free", 0]]}"#;
/// let plan: StepPlan = serde_json::from_str(text)?;
/// assert_eq!(plan.steps[2], Action::Free(0));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepPlan {
    /// The version, [`PLAN_VERSION`].
    #[serde(rename = "remat-step-plan")]
    pub version: u32,
    /// The budget, in bytes.
    pub budget_bytes: u64,
    /// The most bytes in memory at a time.
    pub peak_bytes: u64,
    /// Nanoseconds that all ops take, each once.
    pub cost_ns: u64,
    /// Nanoseconds that runs again take.
    pub recompute_ns: u64,
    /// Nanoseconds that every schedule within the budget takes at least whose first runs are in program order.
    pub bound_ns: u64,
    /// The seed of the search.
    pub seed: u64,
    /// Rounds of the search.
    pub iterations: u64,
    /// Constants and ops of the recording.
    pub ops: u64,
    /// Storages of the recording.
    pub storages: u64,
    /// The runs and frees, in order.
    pub steps: Vec<Action>,
    /// Addresses for the blocks that the steps take, where they were asked for ([`place`](crate::step::place)).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addresses: Option<Addresses>,
}

/// One thing that a plan has happen: `["run", 3]`, `["run", 3, "in place"]` or `["free", 2]`.
///
/// Ops are the recording's constants and ops, numbered from 0 in their order. Storages are their results that are no
/// views, constants included, numbered from 0 in the order of their creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Line", into = "Line")]
pub enum Action {
    /// An op runs. All storages that it makes are taken at once; those that were there are given back after it. The
    /// first run of an op that writes in place takes the blocks of the old values, which are gone then.
    Run(u32),
    /// An op that writes in place runs again, and takes the blocks of the old values. A [`Run`](Action::Run) would
    /// write into copies.
    RunInPlace(u32),
    /// A storage is dropped.
    Free(u32),
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Line {
    Plain(String, u32),
    How(String, u32, String),
}

impl TryFrom<Line> for Action {
    type Error = String;

    fn try_from(line: Line) -> Result<Action, String> {
        match line {
            Line::Plain(what, op) if what == "run" => Ok(Action::Run(op)),
            Line::Plain(what, storage) if what == "free" => Ok(Action::Free(storage)),
            Line::How(what, op, how) if what == "run" && how == "in place" => {
                Ok(Action::RunInPlace(op))
            }
            Line::Plain(what, _) | Line::How(what, ..) => Err(format!(
                "{what:?} is no step; wanted is [\"run\", OP], [\"run\", OP, \"in place\"] or [\"free\", STORAGE]"
            )),
        }
    }
}

impl From<Action> for Line {
    fn from(action: Action) -> Line {
        match action {
            Action::Run(op) => Line::Plain("run".into(), op),
            Action::RunInPlace(op) => Line::How("run".into(), op, "in place".into()),
            Action::Free(storage) => Line::Plain("free".into(), storage),
        }
    }
}
